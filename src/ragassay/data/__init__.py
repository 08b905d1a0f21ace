"""Readers of data sets and of released attack texts.

======================  ==========================================================
:mod:`.jsonl`           strict reading of lines, JSON and tables, with line numbers
:mod:`.released`        the formats in which published attacks are released
:mod:`.assembly`        groups, selection and fingerprint, common to all readers
:mod:`.beir`            a folder in the BEIR layout
:mod:`.named`           a public data set by name, through ``ir_datasets``
:mod:`.atlas`           the data set that comes with the package
:mod:`.check`           what ``ragassay data check`` says about a data set
======================  ==========================================================
"""
