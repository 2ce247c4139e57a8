"""The repository root is the package `mirlo`: folders that ship are listed here, the rest (tests, docs) stays out."""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

SHIPPED = [
    "extend",
    "testing",
    "dialects",
    "frontends",
    "passes",
    "targets",
    "runtime",
    "driver",
    "tools",
]
FOUND = [name for folder in SHIPPED for name in (folder, *(f"{folder}.{sub}" for sub in find_packages(folder)))]


class BuildPackage(build_py):
    """Leaves this file out, which lies in the folder of the package."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        return [module for module in super().find_package_modules(package, package_dir) if module[1] != "setup"]


setup(
    packages=["mirlo", *(f"mirlo.{name}" for name in FOUND)],
    package_dir={"mirlo": "."},
    package_data={
        "mirlo": ["py.typed"],
        "mirlo.dialects": ["stubs/*.pyi"],
        "mirlo.frontends.onnx": ["*.txt"],
        "mirlo.runtime": ["ir/*.ll"],
        "mirlo.runtime.regex": ["*.txt"],
        "mirlo.targets.llvm.library": ["c/*"],
        "mirlo.tools.samples": ["*.onnx"],
        "mirlo.tools": ["*.c"],
        "mirlo.tools.fuzz": ["*.c"],
        "mirlo.tools.place": ["*.html", "*.css", "*.js"],
        "mirlo.tools.explorer": ["*.html", "*.css", "*.js"],
    },
    cmdclass={"build_py": BuildPackage},
)
