"""What is wrong with a kernel that was asked for."""


class KernelError(Exception):
    """It cannot be built: the message names what was asked, what was found, and what to do."""
