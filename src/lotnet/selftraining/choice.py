"""Which of the images that the teacher labeled the student is trained on."""

import torch
from torch import Tensor

from lotnet.selftraining.pseudolabels import PseudoLabels


def most_confident(found: PseudoLabels, count: int | None, classes: int) -> Tensor:
    """Indices of the images of which the teacher is most sure, equally many of each class, in ascending order.

    As Carmon et al. (2019) chose among 80 million images: of each class that the teacher names, the `count / classes`
    images of highest confidence; ties go to the earlier image. A class that is named less often gives all its images.
    Without a count, all images are used.
    """
    if count is None:
        return torch.arange(len(found.labels))
    chosen = []
    for label in range(classes):
        share = (count * (label + 1)) // classes - (count * label) // classes
        mine = (found.labels == label).nonzero().flatten()
        chosen.append(mine[found.confidence[mine].argsort(descending=True, stable=True)[:share]])
    return torch.cat(chosen).sort().values
