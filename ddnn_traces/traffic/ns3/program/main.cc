// SPDX-License-Identifier: GPL-2.0-only
// The same simulation as a program: main SCENARIO OUT.

#include "simulation.h"

#include <iostream>

int
main(int argc, char** argv)
{
    if (argc != 3)
        return 2;
    try
    {
        ddnn::simulate(argv[1], argv[2]);
    }
    catch (const std::exception& error)
    {
        std::cerr << error.what() << std::endl;
        return 1;
    }
    return 0;
}
