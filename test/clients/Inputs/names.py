"""arabic-name-romanizer: names in Latin letters, by a dictionary and by a model."""

from arabic_name_romanizer import transliterate, transliterate_many
from inputs import tell

known = transliterate("محمد عبد الله", top_k=3)
unknown = transliterate_many(["زقطوم البربخشي", "شهرنوش پارسی‌پور", "عثمانوف"], top_k=2)
several = [known, *unknown]
tell(texts=[[one.text for one in found] for found in several], scores=[one.score for found in several for one in found])
