"""The result of self-training, in the form of the results of other runs."""

import re
from dataclasses import replace
from pathlib import Path

from lotnet.config.selftraining import SelfTrainingConfig
from lotnet.errors import InputError
from lotnet.files import without_folders
from lotnet.paper.results import Result, StudentResult, collect, command_of
from lotnet.selftraining import results
from lotnet.selftraining.plan import FILE, STUDENT, Plan


def is_selftraining(folder: Path) -> bool:
    """Whether the folder is one of self-training, with teacher and student in it."""
    return (folder / FILE).is_file()


def collect_student(folder: Path, name: str) -> Result:
    """The student's result, with the command that made it and what is known about its teacher and its images."""
    plan, path = Plan.read(folder), folder / results.FILE
    if len(plan.seeds) > 1:
        raise InputError(f"{folder} has several seeds: record each, as {plan.folder(folder, plan.seeds[0])}")
    if not path.is_file():
        raise InputError(f"{folder} is not finished: continue it with `lotnet selftrain --resume {folder}`")
    (found,) = results.read(path).seeds
    student = collect(folder / STUDENT, name)
    if student.checksum != found.student.checksum:
        raise InputError(f"{path} is about another student: delete it, and `lotnet selftrain --resume` writes it again")
    about = StudentResult(_without_folders(plan.selftraining), found.seed, found.images, found.teacher, found.measured)
    command = command_of(list(plan.command)) if plan.command else student.command
    return replace(student, command=command, selftraining=about)


def _without_folders(settings: SelfTrainingConfig) -> SelfTrainingConfig:
    """The settings for a file that others read: paths on this machine are cut to their last part."""
    teacher, unlabeled = settings.teacher, settings.unlabeled
    return replace(
        settings,
        teacher=teacher and without_folders(teacher),
        unlabeled=unlabeled and re.sub(r"[^,\s][^,]*", lambda source: without_folders(source[0]), unlabeled),
    )
