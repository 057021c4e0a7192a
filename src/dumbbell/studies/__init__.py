"""What a run's tables tell, for pages and tools: each module reads them for one subject."""
