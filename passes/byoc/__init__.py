"""BYOC: passes that hand subgraphs to external code generators."""
