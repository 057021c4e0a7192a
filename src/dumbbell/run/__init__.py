"""The directory of a run: create it, find it again, read its contents, follow its progress."""
