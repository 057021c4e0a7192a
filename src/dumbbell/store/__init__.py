"""The run store: spools in, tables, manifest, events and verdict out, and every row in InfluxDB."""
