# Set-up shared by `demo` and `test`: the distribution's Slurm, Python, a virtual environment, the package.
# To be sourced by POSIX sh from the repository's root. Safe to repeat; quick when nothing is missing. Kernels
# are compiled as well; with kernels set to "solvers" only what computes in jobs, with "none" nothing.

unset PYTHONDONTWRITEBYTECODE # many processes import the same files: one compiles them for all

PACKAGES="slurmctld slurmd slurm-client munge"

say() { printf '%s\n' "$*"; }

stop() {
    printf 'osub: %s\n' "$*" >&2
    exit 1
}

# Slurm's daemons lie in sbin, which is not on every user's PATH.
has() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1; }

good_python() {
    has "$1" && "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for python in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if good_python "$python"; then
            printf '%s\n' "$python"
            return 0
        fi
    done
    return 1
}

# install PACKAGE...: from the distribution, as root or with sudo; else the command for an administrator.
install() {
    command="apt-get update && apt-get install -y --no-install-recommends $*"
    has apt-get || stop "not installed here: $*, and there is no apt-get; please install what your system calls these"
    if [ "$(id -u)" -eq 0 ]; then
        sudo=
    elif has sudo && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
        sudo=sudo
    else
        stop "not installed here: $*. Ask an administrator for: sudo sh -c '$command'"
    fi
    say "installing from the distribution: $*"
    $sudo apt-get update -qq || stop "apt-get update failed"
    # shellcheck disable=SC2086
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
        stop "apt-get install $* failed"
}

set_up_system() {
    missing=
    for program in slurmctld slurmd sbatch munged; do
        has "$program" || missing=yes
    done
    wanted=${missing:+$PACKAGES}
    # All at once, so that an administrator is asked once.
    find_python >/dev/null || wanted="$wanted python3 python3-venv"
    # shellcheck disable=SC2086
    [ -z "$wanted" ] || install $wanted
    if ! find_python >/dev/null; then
        # A distribution whose python3 is older may have a newer one as well.
        find_python >/dev/null || install python3.11 python3.11-venv
        find_python >/dev/null || stop "Python 3.11 or newer with venv is needed; set PYTHON to one"
    fi
}

set_up_package() {
    python=$(find_python)
    stamp=.venv/osub-stamp
    wanted=$(cat pyproject.toml requirements.lock scripts/setup.sh gangd/agent/switch.c | cksum)" $PWD $("$python" -VV)"
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        return 0
    fi
    say "setting up .venv (once, about a minute)"
    [ -x .venv/bin/python ] && .venv/bin/python -c '' 2>/dev/null || "$python" -m venv --clear .venv ||
        stop "cannot make a virtual environment in $PWD/.venv"
    pip=".venv/bin/python -m pip --disable-pip-version-check --quiet"
    # Most modules of these are never imported: the first import of one compiles it.
    $pip install --no-compile --no-deps --require-hashes -r requirements.lock ||
        stop "could not install the locked packages; is a package index reachable?"
    $pip install --no-deps --no-build-isolation -e . || stop "could not install the package itself"
    printf '%s\n' "$wanted" >"$stamp"
    compile_kernels
}

compile_kernels() {
    [ "${kernels:-}" != none ] || return 0
    .venv/bin/osub workloads compile >/dev/null || say "kernels could not be compiled; the first jobs will try again" &
    if [ "${kernels:-}" != solvers ]; then
        say "compiling the simulator (once for this version, about half a minute)"
        .venv/bin/python -m simulator.compile_ahead 2>/dev/null ||
            say "the simulator could not be compiled; the first simulation will try again"
    fi
    wait "$!"
}

set_up_system
set_up_package
