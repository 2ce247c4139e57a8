"""Decoders of image files, in numpy: PNG, BMP and PNM. They return [height, width, 3] pixels, RGB in u8."""
