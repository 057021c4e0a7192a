"""Tools for maintainers, run in a checkout: benchmarks, tables of results, documentation of roles."""
