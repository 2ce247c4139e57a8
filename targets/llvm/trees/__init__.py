"""Decision trees whose nodes are constants: the upper levels without branches, several rows in vectors."""
