#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A private, real Slurm cluster on one machine, for tests and for trying things out.
#
#   slurm-dev-cluster.sh start          start it; returns when all nodes are idle
#   slurm-dev-cluster.sh env            print what a client must have in its environment
#   slurm-dev-cluster.sh status         the nodes, and which daemons live
#   slurm-dev-cluster.sh stop           end the jobs and the daemons that this script started, nothing else
#   slurm-dev-cluster.sh clean          stop, and delete the cluster's folder
#   slurm-dev-cluster.sh keep           start it, print "up", wait for the end of standard input, clean: whoever holds the
#                                       other end of the pipe need not end in order
#   slurm-dev-cluster.sh halt NAME      end one daemon: slurmctld, slurmdbd, node01, ...
#   slurm-dev-cluster.sh resume NAME    start it again
#
# Run as root. Packages: slurm-wlm slurm-wlm-basic-plugins slurmdbd slurm-wlm-mysql-plugin munge mariadb-server (with
# SLURM_DEV_REST=1 also slurmrestd slurm-wlm-jwt-plugin). No systemd, no cgroups, nothing in /etc: all is in
# SLURM_DEV_DIR, every listener is on 127.0.0.1 or a unix socket. Nodes are slurmd processes of this machine that claim
# CPUs, memory and GPUs. Made for Slurm 22.05; 24.11 runs too.
#
# Settings (environment variables, [default]):
#   SLURM_DEV_DIR    [/tmp/slurm-dev]  everything, the jobs' too
#   SLURM_DEV_PORT   [16800]     first of some 20 ports
#   SLURM_DEV_NODES  [4]         nodes, 2 at least
#   SLURM_DEV_CPUS   [16]        CPUs of each
#   SLURM_DEV_GPUS   [8]         GPUs of each
#   SLURM_DEV_MEM    [64000]     MB of each
#   SLURM_DEV_DBD    [1]         0: without slurmdbd and MariaDB, so without sacct
#   SLURM_DEV_REST   [0]         1: slurmrestd with JWT
#   SLURM_DEV_USER   [slurmtest] an account without privileges, made if it is not there
#
# Partitions: main (all nodes, at most 1 h), small (node01, at most 5 min). Qualities of service: normal, tiny (one job of
# a user at a time).
set -euo pipefail

dir=${SLURM_DEV_DIR:-/tmp/slurm-dev}
port=${SLURM_DEV_PORT:-16800}
nodes=${SLURM_DEV_NODES:-4}
cpus=${SLURM_DEV_CPUS:-16}
gpus=${SLURM_DEV_GPUS:-8}
mem=${SLURM_DEV_MEM:-64000}
dbd=${SLURM_DEV_DBD:-1}
rest=${SLURM_DEV_REST:-0}
user=${SLURM_DEV_USER:-slurmtest}
gpu_type=h100
dbd_port=$((port + 1)) rest_port=$((port + 2)) sql_port=$((port + 3)) node_port=$((port + 10))
export SLURM_CONF=$dir/etc/slurm.conf

say() { echo "slurm-dev-cluster: $*" >&2; }
die() { say "$*"; exit 1; }
version() { slurmd -V | sed 's/^[^0-9]*\([0-9]*\)\..*/\1/'; }
node_names() { seq -f 'node%02g' "$nodes"; }

# --- daemons: run/NAME.pid holds pid and start time, so that a pid that was given out again is never ended ------------
start_ticks() { sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

alive() {
  local pid ticks
  read -r pid ticks 2>/dev/null <"$dir/run/$1.pid" && [ -n "$ticks" ] && [ "$(start_ticks "$pid")" = "$ticks" ]
}

launch() { # launch NAME COMMAND...: in a session of its own
  local name=$1 pid
  shift
  setsid "$@" >>"$dir/log/$name.out" 2>&1 </dev/null &
  pid=$!
  echo "$pid $(start_ticks "$pid")" >"$dir/run/$name.pid"
}

halt() { # halt NAME...: SIGTERM to all, then SIGKILL to those that are left after 10 s
  local name pid tries
  for name in "$@"; do
    if alive "$name"; then read -r pid _ <"$dir/run/$name.pid"; kill -TERM "$pid" 2>/dev/null || true; fi
  done
  for name in "$@"; do
    for tries in $(seq 100); do alive "$name" || break; sleep 0.1; done
    if alive "$name"; then read -r pid _ <"$dir/run/$name.pid"; kill -KILL "$pid" 2>/dev/null || true; fi
    rm -f "$dir/run/$name.pid"
  done
}

wait_for() { # wait_for SECONDS WHAT COMMAND...
  local limit=$1 what=$2 begin=$SECONDS
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ $((SECONDS - begin)) -ge "$limit" ]; then
      tail -n 20 "$dir"/log/*.out "$dir"/log/*.log >&2 || true
      die "$what: not there after $limit s"
    fi
    sleep 0.1
  done
}

port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
all_idle() { [ "$(sinfo -h -N -p main -o %T | grep -cx idle)" = "$nodes" ]; }

# --- configuration ----------------------------------------------------------------------------------------------------
write_config() { # write_config SQL_PASSWORD
  local i=0 name jwt=
  install -d -m 0755 "$dir" "$dir/run" "$dir/log" "$dir/etc" "$dir/state" "$dir/state/ctld" "$dir/gpu"
  install -d -m 0700 -o munge -g munge "$dir/munge"
  install -d -m 0755 -o munge -g munge "$dir/munge-run"
  # Copies of /dev/null: Slurm sets CUDA_VISIBLE_DEVICES from the number at the end of a character device's name.
  for i in $(seq 0 $((gpus - 1))); do [ -c "$dir/gpu/nvidia$i" ] || mknod -m 666 "$dir/gpu/nvidia$i" c 1 3; done
  if [ "$rest" = 1 ]; then
    [ -s "$dir/etc/jwt.key" ] || (umask 077; head -c 32 /dev/urandom >"$dir/etc/jwt.key")
    jwt="AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=$dir/etc/jwt.key"
  fi
  {
    cat <<CONF
ClusterName=dev
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$dir/state/ctld
SlurmctldPidFile=$dir/run/slurmctld.self
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmctldDebug=info
AuthType=auth/munge
AuthInfo=socket=$dir/munge-run/munge.sock
CredType=cred/munge
$jwt
SlurmdSpoolDir=$dir/state/%n
SlurmdPidFile=$dir/run/%n.self
SlurmdLogFile=$dir/log/%n.log
SlurmdDebug=info
TmpFS=$dir/state/%n
# Nodes claim what is written below, whatever the machine has.
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
# Memory is polled: a job that takes more than its --mem is ended some seconds later.
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
MaxArraySize=1001
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=100000,batch_sched_delay=0,sched_max_job_start=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
KillWait=5
InactiveLimit=0
MinJobAge=600
SlurmctldTimeout=30
SlurmdTimeout=60
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
MessageTimeout=20
TCPTimeout=2
GresTypes=gpu
CONF
    if [ "$dbd" = 1 ]; then
      # The password of slurmdbd by munge is the path of its socket.
      cat <<CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$dbd_port
AccountingStoragePass=$dir/munge-run/munge.sock
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
AccountingStoreFlags=job_comment,job_script,job_env
CONF
    else
      echo AccountingStorageType=accounting_storage/none
    fi
    echo "NodeName=DEFAULT Sockets=1 CoresPerSocket=$cpus ThreadsPerCore=1 RealMemory=$mem Gres=gpu:$gpu_type:$gpus State=UNKNOWN"
    i=0
    for name in $(node_names); do
      i=$((i + 1))
      echo "NodeName=$name NodeHostname=$name NodeAddr=127.0.0.1 Port=$((node_port + i))"
    done
    echo "PartitionName=main Nodes=ALL Default=YES MaxTime=1:00:00 DefaultTime=10:00 DefMemPerCPU=500 State=UP"
    echo "PartitionName=small Nodes=node01 MaxTime=5:00 DefMemPerCPU=500 State=UP"
  } >"$dir/etc/slurm.conf"
  echo "NodeName=$(node_names | paste -sd,) Name=gpu Type=$gpu_type File=$dir/gpu/nvidia[0-$((gpus - 1))]" >"$dir/etc/gres.conf"
  # 24.x insists on a cgroup plugin unless told so; 22.05 does not know the word and needs none.
  if [ "$(version)" -ge 24 ]; then echo CgroupPlugin=disabled; fi >"$dir/etc/cgroup.conf"
  (
    umask 077
    cat >"$dir/etc/slurmdbd.conf" <<CONF
DbdHost=$(hostname -s)
DbdAddr=127.0.0.1
DbdPort=$dbd_port
CommunicationParameters=NoInAddrAny
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge-run/munge.sock
$jwt
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$sql_port
StorageUser=slurm
StoragePass=$1
StorageLoc=slurm_acct_db
PidFile=$dir/run/slurmdbd.self
LogFile=$dir/log/slurmdbd.log
DebugLevel=info
CONF
  )
}

# --- what is started --------------------------------------------------------------------------------------------------
start_munge() {
  if [ ! -s "$dir/munge/munge.key" ]; then
    head -c 128 /dev/urandom >"$dir/munge/munge.key"
    chown munge:munge "$dir/munge/munge.key"
    chmod 0400 "$dir/munge/munge.key"
  fi
  launch munged setpriv --reuid=munge --regid=munge --clear-groups munged --foreground \
    --key-file="$dir/munge/munge.key" --seed-file="$dir/munge/munge.seed" --socket="$dir/munge-run/munge.sock" \
    --pid-file="$dir/munge-run/munged.self" --log-file="$dir/munge/munged.log" --num-threads=2
  wait_for 15 munged test -S "$dir/munge-run/munge.sock"
}

start_sql() { # start_sql PASSWORD
  local data=$dir/mysql socket=$dir/run-mysql/sock
  install -d -m 0750 -o mysql -g mysql "$data"
  install -d -m 0755 -o mysql -g mysql "$dir/run-mysql"
  [ -d "$data/mysql" ] || mariadb-install-db --no-defaults --user=mysql --datadir="$data" \
    --auth-root-authentication-method=socket --skip-test-db >"$dir/log/mariadb-install.out" 2>&1
  launch mariadbd mariadbd --no-defaults --user=mysql --datadir="$data" --socket="$socket" --bind-address=127.0.0.1 \
    --port="$sql_port" --pid-file="$dir/run-mysql/pid" --skip-name-resolve --innodb-buffer-pool-size=64M \
    --innodb-log-file-size=16M --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=0 --sync-binlog=0
  wait_for 60 mariadbd mariadb-admin --no-defaults --socket="$socket" ping
  mariadb --no-defaults --socket="$socket" <<SQL
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE OR REPLACE USER 'slurm'@'127.0.0.1' IDENTIFIED BY '$1';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';
SQL
}

start_daemon() { # start_daemon slurmctld|slurmdbd|NODE
  case $1 in
    slurmctld)
      launch slurmctld slurmctld -D -i
      wait_for 30 slurmctld scontrol ping
      ;;
    slurmdbd)
      launch slurmdbd slurmdbd -D
      wait_for 60 slurmdbd port_open "$dbd_port"
      ;;
    node*) launch "$1" slurmd -D -N "$1" ;;
    *) die "$1: slurmctld, slurmdbd or a node" ;;
  esac
}

start_rest() {
  install -d -m 0777 "$dir/rest"
  local specs=openapi/v0.0.38 of_dbd=openapi/dbv0.0.38
  [ "$(version)" -lt 24 ] || { specs=slurmctld; of_dbd=slurmdbd; }
  [ "$dbd" != 1 ] || specs=$specs,$of_dbd
  # It refuses to run as root or SlurmUser; SLURM_JWT=daemon makes it take each request's own token.
  launch slurmrestd env SLURM_JWT=daemon setpriv --reuid=nobody --regid=nogroup --clear-groups \
    slurmrestd -a rest_auth/jwt -s "$specs" "127.0.0.1:$rest_port"
  wait_for 15 slurmrestd port_open "$rest_port"
}

start() {
  local begin=$SECONDS password name program
  [ "$(id -u)" = 0 ] || die "start it as root"
  for program in slurmctld slurmd munged $([ "$dbd" != 1 ] || echo slurmdbd mariadbd); do
    command -v "$program" >/dev/null || die "$program is not installed"
  done
  ! alive slurmctld || die "it runs already in $dir"
  ! port_open "$port" || die "port $port is taken: set SLURM_DEV_PORT"
  trap 'trap - EXIT; stop' EXIT # what fails to start leaves nothing running
  id "$user" >/dev/null 2>&1 || useradd --system --create-home --shell /bin/bash "$user"
  password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  write_config "$password"
  start_munge
  if [ "$dbd" = 1 ]; then
    start_sql "$password"
    start_daemon slurmdbd
    # Jobs are written to the database only once it knows the cluster.
    wait_for 30 sacctmgr sacctmgr -n show cluster
    if [ -z "$(sacctmgr -n -P show cluster dev format=cluster)" ]; then
      sacctmgr -i add cluster dev >/dev/null
      sacctmgr -i add account dev cluster=dev >/dev/null
      sacctmgr -i add qos tiny MaxSubmitJobsPerUser=1 >/dev/null
      sacctmgr -i add user "root,$user" account=dev qos=normal,tiny defaultqos=normal >/dev/null
    fi
  fi
  for name in $(node_names); do install -d -m 0755 "$dir/state/$name"; done
  start_daemon slurmctld
  for name in $(node_names); do start_daemon "$name"; done
  wait_for 60 "$nodes idle nodes" all_idle
  [ "$rest" != 1 ] || start_rest
  trap - EXIT
  say "up in $((SECONDS - begin)) s: $nodes nodes of $gpus GPUs in $dir"
}

running() { # names of all daemons with a pid file, but those whose end others wait for
  local file
  for file in "$dir"/run/*.pid; do [ ! -e "$file" ] || basename "$file" .pid; done | grep -vx -e mariadbd -e munged -e slurmdbd || true
}

stop() {
  local tries
  [ -d "$dir/run" ] || return 0
  if alive slurmctld; then
    # The jobs first: their slurmstepd would outlive slurmd.
    squeue -h -o %A 2>/dev/null | sort -u | xargs -r scancel 2>/dev/null || true
    for tries in $(seq 60); do [ -n "$(squeue -h 2>/dev/null)" ] || break; sleep 0.2; done
  fi
  # shellcheck disable=SC2046
  halt $(running)
  halt slurmdbd
  halt mariadbd munged
  say stopped
}

clean() {
  stop
  case $dir in / | /tmp | /root | /home | "${HOME:-/root}") die "$dir is not deleted" ;; esac
  rm -rf "$dir"
}

status() {
  local file name
  for file in "$dir"/run/*.pid; do
    [ -e "$file" ] || continue
    name=$(basename "$file" .pid)
    if alive "$name"; then echo "$name: up"; else echo "$name: down"; fi
  done
  sinfo -N -p main -o '%N %T %c %m %G' || true
}

print_env() {
  echo "export SLURM_CONF=$SLURM_CONF"
  [ "$rest" != 1 ] || echo "export SLURM_REST_URL=http://127.0.0.1:$rest_port"
}

case ${1:-} in
  start) start ;;
  stop) stop ;;
  clean) clean ;;
  keep)
    start
    echo up
    cat >/dev/null || true
    clean
    ;;
  halt) halt "${2:?which}" ;;
  resume) start_daemon "${2:?which}" ;;
  env) print_env ;;
  status) status ;;
  *) sed -n '2,/^set /{/^set /d;/SPDX/d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;;
esac
