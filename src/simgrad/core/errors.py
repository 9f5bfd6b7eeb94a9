"""Errors that a user can mend: `InputError`, and its kinds for callers that tell them apart."""


class InputError(ValueError):
    """Something given to simgrad does not fit.

    The message names the file, row or option and says what to do about it; the command line
    prints it without a traceback and exits with 2.
    """


class DiskError(InputError, OSError):
    """A file cannot be written: no space, no permission, a read-only or failing disk."""


class NoLocks(DiskError):
    """The file system does not support locks, so nobody can be kept out."""


class Busy(InputError):
    """Another process holds the lock of what was asked for; wait for it, or take something else."""


class NotFinite(InputError):
    """Numbers hold NaN or infinity; while a model is trained, it has diverged."""


class OutOfMemory(InputError):
    """There is no room for it now; there may be when others are done."""
