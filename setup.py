"""The repository root is the package `mirlo`: folders that ship are listed here, the rest (tests, docs) stays out."""

from setuptools import find_packages, setup

SHIPPED = ["dialects", "frontends", "passes", "targets", "runtime", "tools"]
FOUND = [name for folder in SHIPPED for name in (folder, *(f"{folder}.{sub}" for sub in find_packages(folder)))]

setup(
    packages=["mirlo", *(f"mirlo.{name}" for name in FOUND)],
    package_dir={"mirlo": "."},
    package_data={"mirlo.runtime": ["*.ll"]},
)
