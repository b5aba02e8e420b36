-- Once, as PostgreSQL's superuser: a login for the owner, which makes the ledger, one for each team, and the database.
\set owner `cat /run/secrets/owner`
\set research `cat /run/secrets/research`
\set writing `cat /run/secrets/writing`
\set shops `cat /run/secrets/shops`
CREATE ROLE owner LOGIN CREATEROLE PASSWORD :'owner';
CREATE ROLE research LOGIN PASSWORD :'research';
CREATE ROLE writing LOGIN PASSWORD :'writing';
CREATE ROLE shops LOGIN PASSWORD :'shops';
CREATE DATABASE x402 OWNER owner;
