"""Files of other tools, read into a directory like that of a run: ``docs/read.md``.

A module for each kind of file (``packets`` takes captures apart), ``model`` with what they all make of one,
``flows`` with the flows of several files, ``directory`` with what is written.
"""
