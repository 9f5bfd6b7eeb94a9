#!/bin/bash
# A study on a Slurm cluster: sbatch examples/slurm.sh FOLDER [option ...]
#
# FOLDER is a study's folder, or a study file with --output FOLDER, on a disk that all nodes share.
# The same command runs once on each node. The commands take turns by locking run folders: a node
# that is lost leaves its runs to the others, and a job that is sent again goes on where it was.
#
# Ask for what your cluster has: nodes, GPUs (also --gres=gpu:1), time, partition, account.
#SBATCH --job-name=simgrad
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --signal=TERM@120
#SBATCH --output=simgrad-%j.txt

if [ $# -eq 0 ]; then
    echo "usage: sbatch $0 FOLDER [option ...], as simgrad study takes them" >&2
    exit 2
fi

# --signal: two minutes before the end each run writes a checkpoint, and stops.
# --no-kill and --kill-on-bad-exit=0: one node less, and the others go on.
srun --kill-on-bad-exit=0 simgrad study "$@"
