"""Building blocks of checks: `Check` itself, the files, rows and events that a run must have, and waivers."""
