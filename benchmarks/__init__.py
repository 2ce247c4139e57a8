"""What is measured, and how. Run from the root of the repository; not part of the installed package."""
