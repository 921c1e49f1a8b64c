# SPDX-License-Identifier: GPL-2.0-only
"""Compiles simulation.h by cppyy and runs it: by_cppyy.py INCLUDE HEADER LIBRARY... -- SCENARIO OUT.

In a process of its own; the package is not imported. EXTRA_CLING_ARGS sets optimisation and standard.
"""

import sys

import cppyy

include, header, *libraries, _, scenario, out = sys.argv[1:]
cppyy.add_include_path(include)
for library in libraries:
    cppyy.load_library(library)
cppyy.include(header)
cppyy.gbl.ddnn.simulate(scenario, out)
