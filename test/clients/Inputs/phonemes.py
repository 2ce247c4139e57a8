"""g2p-id-py: how Indonesian words are spoken."""

from g2p_id.bert import BERT
from g2p_id.lstm import LSTM
from inputs import tell

words = ["mengembangkan", "fortepiano", "perpustakaan"]
tell(spoken=[LSTM().predict(word) for word in words], letters=[BERT().predict(word) for word in words])
