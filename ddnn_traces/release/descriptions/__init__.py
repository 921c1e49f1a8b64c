"""The descriptions of a release, all made from facts.Release and schemas/, none by hand: same facts, same bytes.

    facts.Release + schemas/ -> croissant, data_package, ro_crate, datacite, citation, card, ... -> writing

No description has a time of its making, a random number or anything of the machine in it.
"""
