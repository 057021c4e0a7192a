"""Read the files of a run into tables: spools, reports of tools, captures; and a client of InfluxDB."""
