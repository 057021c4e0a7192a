"""What checks are made of: a fact that was asked for beside the one found, and what files and rows say."""
