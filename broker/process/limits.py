"""The limits that the system sets to the process."""

import resource


def raise_open_files_limit() -> int:
    """Raise the soft limit on open files to the hard one; return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
