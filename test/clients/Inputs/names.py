"""arabic-name-romanizer: names in Latin letters, by a dictionary and by a model."""

from arabic_name_romanizer import transliterate, transliterate_many
from inputs import tell

tell(
    known=transliterate("محمد عبد الله", top_k=3),
    unknown=transliterate_many(["زقطوم البربخشي", "شهرنوش پارسی‌پور", "عثمانوف"], top_k=2),
)
