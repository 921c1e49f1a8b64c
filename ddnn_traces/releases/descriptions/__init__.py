"""The descriptions of a release, all made from facts.Release and schemas/, none by hand: the same facts, the same bytes.

    facts.Release + schemas/ -> shared -> croissant, data_package, ro_crate, datacite, citation, card, datasheet, licence

No description has a time of its making, a random number or anything of the machine in it.
"""
