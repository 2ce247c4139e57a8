"""Programs written in Python syntax: prim functions (`T`) and graphs (`R`), parsed and never executed."""
