"""Run directories with made-up numbers, so that reports are tested without training."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lotnet.certification.summary import CLAIMS
from lotnet.config import RunConfig
from lotnet.data import Dataset, Split, cache

RADII = [36 / 255, 72 / 255, 108 / 255]
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def made_up_data(root: Path, images: int = 300, side: int = 8) -> Split:
    """Store noise as cifar10 in a separate cache; return the test images."""
    random = torch.Generator().manual_seed(0)
    test = Split(
        torch.randint(0, 256, (images, 3, side, side), generator=random).byte(),
        torch.randint(0, 10, (images,), generator=random),
    )
    train = test.select(torch.arange(20))
    cache.write(Dataset("cifar10", train, test, NAMES), root / "cifar10.safetensors", "made up")
    return test


def made_up_run(path: Path, labels: torch.Tensor, seed: int = 0, scale: float = 0.4, **settings: Any) -> Path:
    """A run on the images of `made_up_data` that classifies three of four correctly."""
    random = np.random.default_rng(seed)
    truth = labels.numpy()
    count = len(truth)
    predictions = np.where(random.random(count) < 0.75, truth, (truth + 1) % 10)
    radii = random.exponential(scale, count)
    radii[0], predictions[0] = 36 / 255, truth[0]  # a tie, which is not certified
    right = predictions == truth
    certified = [float((right & (radii > radius)).mean()) for radius in RADII]
    summary = {
        "images": count,
        "clean": float(right.mean()),
        "radii": RADII,
        "certified": dict.fromkeys(CLAIMS, certified),
        "mean_radius": {claim: float(np.where(right, radii, 0).mean()) for claim in CLAIMS},
        "linf_mean_radius": 0.01,
        "l1_mean_radius": 0.1,
        "curve": {"radius": [0.0], "certified": [float(right.mean())]},
        "classes": [],
        "lipschitz_bound": 3.98,
        "precision": "float64",
        "not_finite": 0,
    }
    certificates = {
        "format": 1,
        "data": "cifar10",
        "split": "test",
        "checksum": f"{seed:064x}",
        "evaluation_seconds": 1.5,
        "device": "cpu",
        "summary": summary,
        "audit": [
            {
                "name": "model.0",
                "kind": "Normalize",
                "lipschitz_bound": 3.9,
                "orthogonality_error": None,
                "seconds": 0.0,
            },
            {"name": "model.1", "kind": "Kernel", "lipschitz_bound": 1.0, "orthogonality_error": 2e-6, "seconds": 1.2},
        ],
        "images": [
            {
                "index": n,
                "prediction": int(p),
                "label": int(y),
                "margin": 5 * r,
                **{f"radius_{claim}": r for claim in CLAIMS},
            }
            for n, (p, y, r) in enumerate(zip(predictions, truth, radii.tolist(), strict=True))
        ],
    }
    config = RunConfig.from_dict({"data": {"name": "cifar10"}, "seed": seed, **settings}, "made up")
    session = {
        "started": "2026-01-02T03:04:05+00:00",
        "command": ["lotnet", "train", "--seed", str(seed), "--out", "somewhere"],
        "commit": "c0ffee",
        "versions": {"python": "3.11", "torch": "2.13", "cuda": None},
        "hardware": {"device": "abacus", "processor": "beads", "cores": 2, "processes": 1},
    }
    environment = {
        "format": 1,
        "data": "cifar10",
        "classes": NAMES,
        "images": {"channels": 3, "height": 8, "width": 8, "classes": 10, "mean": [0.5, 0.5, 0.5], "std": 0.25},
        "parameters": 1234567,
        "sessions": [session],
    }
    epochs = [
        {
            "format": 1,
            "epoch": n,
            "loss": 2 / n,
            "clean": 0.7 - 0.3 / n,
            "certified": {"36/255": 0.5 - 0.3 / n},
            "seconds": 2,
        }
        for n in range(1, 6)
    ]
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(config.to_yaml())
    (path / "environment.json").write_text(json.dumps(environment))
    (path / "metrics.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))
    (path / "certificates.json").write_text(json.dumps(certificates))
    return path


def add_attacks(run: Path, test: Split, indices: list[int], limit: int | None = None) -> None:
    """Write attacks.json with one neighbour of each image, at distance 0.5."""
    certificates = read(run)
    nearest = []
    for n in indices:
        pixels = test.images[n].numpy().astype(np.float32) / 255
        distance = 0.5 / pixels.size**0.5 * np.where(pixels > 0.5, -1, 1).astype(np.float32)
        moved = (pixels + distance).astype("<f4")
        length = float(np.linalg.norm(moved.astype(np.float64) - test.images[n].numpy() / 255))
        image = certificates["images"][n]
        nearest.append(
            {
                "index": n,
                "before": image["label"],
                "after": (image["label"] + 3) % 10,
                "radius": image["radius_float"],
                "distance": length,
                "perturbed": base64.b64encode(moved.tobytes()).decode(),
            }
        )
    content = {
        "format": 1,
        "images": limit or len(test),
        "radius": 36 / 255,
        "linf_radius": 8 / 255,
        "clean": 0.75,
        "attacked": {"pgd_l2": 0.6, "pgd_linf": 0.1},
        "certified": 0.5,
        "checked": 290,
        "counterexamples": [],
        "nearest": nearest,
        "checksum": certificates["checksum"],
    }
    (run / "attacks.json").write_text(json.dumps(content))


def read(run: Path, name: str = "certificates.json") -> dict[str, Any]:
    return json.loads((run / name).read_text())


def certified_share(run: Path, radius: float, label: int | None = None) -> float:
    """The certified share of all images or of one class, counted from the certificates."""
    images = [image for image in read(run)["images"] if label in (None, image["label"])]
    return sum(i["prediction"] == i["label"] and i["radius_float"] > radius for i in images) / len(images)
