"""Training models on data sets, merging the result, and comparing trainings on held-out tasks."""

from ptxbench.adapt.training.dry_run import Rehearsal, rehearse
from ptxbench.adapt.training.heldout import HeldOut, judge_trainings
from ptxbench.adapt.training.layout import accelerate_config, check_launch
from ptxbench.adapt.training.memory import Memory, fits, memory_per_gpu
from ptxbench.adapt.training.merge import merge
from ptxbench.adapt.training.recipe import RlRecipe, TrainingRecipe, load_training_recipe
from ptxbench.adapt.training.reinforcement import reinforce
from ptxbench.adapt.training.samples import read_samples, write_samples
from ptxbench.adapt.training.saved import TrainingRecord, read_record
from ptxbench.adapt.training.supervised import prepare, train

__all__ = [
    "HeldOut",
    "Memory",
    "Rehearsal",
    "RlRecipe",
    "TrainingRecipe",
    "TrainingRecord",
    "accelerate_config",
    "check_launch",
    "fits",
    "judge_trainings",
    "load_training_recipe",
    "memory_per_gpu",
    "merge",
    "prepare",
    "read_record",
    "read_samples",
    "rehearse",
    "reinforce",
    "train",
    "write_samples",
]
