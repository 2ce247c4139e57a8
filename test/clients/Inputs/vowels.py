"""piper-tts: the vowels of Arabic and Hebrew texts."""

from inputs import tell
from piper.hebrew import NakdimonDiacritizer
from piper.tashkeel import TashkeelDiacritizer

arabic, hebrew = TashkeelDiacritizer(), NakdimonDiacritizer()
tell(
    arabic=[arabic.diacritize(text) for text in ("بسم الله الرحمن الرحيم", "ذهب الولد إلى المدرسة")],
    hebrew=[hebrew.diacritize(text) for text in ("שלום עולם", "הילד הלך לבית הספר")],
)
