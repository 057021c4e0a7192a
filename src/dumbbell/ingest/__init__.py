"""Files that a run leaves, read into tables: spools, reports of tools, captures; and InfluxDB."""
