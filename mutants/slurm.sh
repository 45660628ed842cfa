#!/bin/sh
# The mutants as a Slurm array: one task for each shard, and a job that merges them.
#
#   sbatch --array=1-8 mutants/slurm.sh all --matrix
#   sbatch --dependency=afterany:JOBID --wrap 'python3 mutants/mutants.py merge build/mutants/shards/shard-*.json'
#
# The tasks share the project's folder (and so the cache of cells); `make all` must have been run in it.
#SBATCH --job-name=mutants
#SBATCH --cpus-per-task=2
#SBATCH --mem=2G
#SBATCH --time=00:30:00
#SBATCH --output=build/mutants/slurm-%A_%a.log
set -eu
k=${SLURM_ARRAY_TASK_ID:?run this as an array: sbatch --array=1-N}
n=${SLURM_ARRAY_TASK_COUNT:?}
mkdir -p build/mutants/shards
exec /usr/bin/python3 mutants/mutants.py "$@" -j "${SLURM_CPUS_PER_TASK:-2}" --shard "$k/$n" \
  --report "json:build/mutants/shards/shard-$k.json"
