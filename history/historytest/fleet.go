package historytest

// EmptyLedger is SQL that makes the function x402.empty_ledger in a fleet's ledger: it deletes all rows, but
// for what a new ledger has. To call it takes a tenth of making a ledger.
const EmptyLedger = `DO $make$ BEGIN EXECUTE (
	SELECT 'CREATE FUNCTION x402.empty_ledger() RETURNS void LANGUAGE sql AS $$ '
		|| string_agg('DELETE FROM x402.' || tablename, '; ')
		|| '; UPDATE x402.content_use SET stored = 0, owed = 0; '
		|| 'DELETE FROM x402.meta WHERE key LIKE ''% %'' $$'
	FROM pg_tables WHERE schemaname = 'x402' AND tablename NOT IN ('meta', 'locks', 'content_use', 'epochs'));
	END $make$`
