"""What all tests share."""

import os

import torch

if not torch.cuda.is_available():
    # GPU kernels run on a CPU then, slowly; Triton asks for this when it is first imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")
