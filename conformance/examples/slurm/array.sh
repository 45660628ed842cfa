#!/usr/bin/env bash
#SBATCH --job-name=judge
#SBATCH --cpus-per-task=1
#SBATCH --mem=2G
#SBATCH --time=00:10:00
# One submission for each task of an array:
#   ls -d SUBMISSIONS/*/ > list
#   sbatch --array=1-$(wc -l < list) array.sh list RESULTS [more options of ol check]
#   ol report class RESULTS/*.jsonl --html class.html --csv class.csv      (afterwards)
#
# Put OL on a file system that the nodes share. Ordinary users have no uids to give to engines: the header of each log
# says what the node could do. A policy with "sandbox" refuses the grade where that is too little.
set -uo pipefail
list=$1 results=$2
shift 2
ol=${OL:-ol}
mkdir -p "$results"
folder=$(sed -n "${SLURM_ARRAY_TASK_ID:?run me as a job array}p" "$list")
[ -n "$folder" ] || { echo "array.sh: $list has no line $SLURM_ARRAY_TASK_ID" >&2; exit 2; }
name=$(basename "$folder")
"$ol" check L10.1 --engine "$folder" -j 1 --report "jsonl:$results/$name.jsonl" "$@"
code=$?
# A task that failed for the learner's reasons is a task that was done.
case $code in 0 | 1 | 3) exit 0 ;; *) exit "$code" ;; esac
