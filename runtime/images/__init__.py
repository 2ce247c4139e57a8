"""Decoders of image files, in numpy: PNG, BMP and PNM. They give rows of pixels, [height, width, 3], RGB in u8."""
