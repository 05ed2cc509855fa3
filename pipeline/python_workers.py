"""Lets Python workers of Spark begin their next tasks sooner."""

from __future__ import annotations

import sys
from zipimport import zipimporter


def forget_archives() -> None:
    """Forget the finders of archives on the path; the next import makes them again.

    At the begin of each task Spark has all finders forget their directories, in case that a module
    was added, and a finder of an archive then reads its directory again at once: for pyspark.zip
    that takes as long as reading 100 MB of records. A finder that is made later uses the directory
    that zipimport keeps in memory.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
