#include "tests/cluster/slurm_place.h"
