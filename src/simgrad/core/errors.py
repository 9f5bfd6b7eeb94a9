"""The one exception for everything a user can mend."""


class InputError(ValueError):
    """Something given to simgrad does not fit.

    The message names the file, row or option and says what to do about it; the command line
    prints it without a traceback and exits with 2.
    """


class DiskError(InputError, OSError):
    """A file cannot be written: no space, no permission, a read-only or failing disk."""
