"""How prose takes a stand: the reading behind :class:`ragassay.scoring.endorse.Endorse`.

``forms`` finds the candidates, ``prose`` cuts the text, ``cues`` knows the closed-class words,
``questions`` reads the question, ``claims`` and ``polarity`` say with what force each candidate
is put forward, and ``decide`` weighs that.
"""
