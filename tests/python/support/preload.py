"""Imported by the fork server of pool.py, so that no rank spends CPU time on these imports."""

import gc

import numpy  # noqa: F401
import pytest  # noqa: F401
import torch._dynamo  # noqa: F401  # imported by the first step of an optimizer

import support.compress
import support.rank  # noqa: F401
import torch_ringdist.elastic
import torch_ringdist.horovod  # noqa: F401

gc.freeze()  # else each collection in a rank copies the pages of all objects
