"""CSV reader."""

from typing import BinaryIO

from . import Table

def read_csv(input_file: BinaryIO) -> Table: ...
