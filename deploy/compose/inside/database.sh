#!/bin/sh
# MariaDB for slurmdbd alone: made at the first start, with a user whose password the volume of keys has.
set -eu
data=/var/lib/mysql
password=/keys/database/password
mkdir -p /run/mysqld "$data"
chown -R mysql:mysql /run/mysqld
chown mysql:mysql "$data"
tries=0
until [ -s "$password" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || { echo "osub: no password for the database" >&2; exit 1; }
    sleep 0.1
done
# Its own tables come last: what is half of a database is not taken for one.
if [ ! -d "$data/mysql" ]; then
    rm -rf "$data"/* "$data/.fresh"
    setpriv --reuid=mysql --regid=mysql --init-groups sh -ec "
        mkdir $data/.fresh
        tar -C $data/.fresh -xz --no-same-owner -f /usr/local/share/osub-database.tar.gz
        mv $data/.fresh/mysql $data/.fresh.mysql
        mv $data/.fresh/* $data/
        mv $data/.fresh.mysql $data/mysql
        rmdir $data/.fresh"
fi
# Read at every start, so that a new password is known at once; the file is root's, and gone when it was read.
init=/run/mysqld/init.sql
secret=$(cat "$password")
umask 077
cat >"$init" <<SQL
CREATE DATABASE IF NOT EXISTS slurm_accounting;
CREATE OR REPLACE USER slurm@'%' IDENTIFIED BY '$secret';
GRANT ALL ON slurm_accounting.* TO slurm@'%';
SQL
chown mysql "$init"
exec mariadbd --user=mysql --datadir="$data" --init-file="$init" --bind-address=0.0.0.0 \
    --socket=/run/mysqld/mysqld.sock --innodb-buffer-pool-size=64M --innodb-log-file-size=16M \
    --innodb-lock-wait-timeout=900 --skip-name-resolve --performance-schema=OFF
