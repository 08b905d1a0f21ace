"""Competing attackers: who wins, how answers are dealt out, what is retrieved, who leads.

Pure parts that need no model: judging answers (:mod:`~ragassay.arena.outcomes`), what attackers
would inject (:mod:`~ragassay.arena.pool`), dealing out answers
(:mod:`~ragassay.arena.assignment`), drawing rounds (:mod:`~ragassay.arena.schedule`), merging
documents by score (:mod:`~ragassay.arena.retrieval`, :mod:`~ragassay.arena.expectation`),
figures of recorded plays (:mod:`~ragassay.arena.figures`), counting prompts
(:mod:`~ragassay.arena.prompts`), and the released data of PoisonArena with what follows from it
(:mod:`~ragassay.arena.released`, :mod:`~ragassay.arena.released_loop`,
:mod:`~ragassay.arena.reproduction`).
"""
