#!/bin/bash
# A fleet as an array of Slurm: docs/fleet.md, "On many machines".
#
#   begin     ropeway fleet submit /project/data /archive/data
#             sbatch slurm.sh /archive/data
#   look      ropeway fleet top /archive/data
#   end       scancel JOBID                   the workers get SIGTERM, and are killed after Slurm's KillWait; the job of
#                                             the fleet stays, and can go on later
#
#SBATCH --job-name=ropeway-fleet
#SBATCH --array=1-16
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=2G
#SBATCH --time=12:00:00
#SBATCH --requeue
# Five minutes before the time is over: to the step, not to this script.
#SBATCH --signal=TERM@300
#SBATCH --output=ropeway-fleet-%A-%a.log
set -u
target=${1:?the DST of the job}
export ROPEWAY_FLEET=unfinished
srun ropeway fleet work --lease 30s "$target"
code=$?
case $code in
# It was stopped, or lost its network or an end: it goes on when there is room again, but not for ever. 4 also means a
# full DST or TMPDIR, a damaged catalog or other rules for names. If it ends with 4 again at once, read its message; a
# restart does not help.
130 | 3 | 4 | 6)
    if [ "${SLURM_RESTART_COUNT:-0}" -lt 50 ]; then
        scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
    fi
    ;;
esac
exit $code
