-- Who may do what. The owner's login owns the schema, and alone changes the rules, the budgets, lifts, and who is let in. An agent's login
-- moves money by functions alone, which run as the owner, take caps and caller from the tables and the session and never from what they are
-- given; beside that it writes what tightens, or what is its own, and row level security says which rows. A reader reads.
DO $$
DECLARE _role TEXT;
BEGIN
    FOREACH _role IN ARRAY ARRAY['x402_agent', 'x402_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = _role) THEN EXECUTE format('CREATE ROLE %I NOLOGIN', _role); END IF;
    END LOOP;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; -- another ledger of this server is made at this moment
END $$;

-- The team that each agent's login pays for ('team:research'). One without a row pays for all agents of the owner's.
CREATE TABLE logins (login TEXT PRIMARY KEY, team TEXT NOT NULL);

CREATE FUNCTION let_in(_login TEXT, _team TEXT) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('GRANT x402_agent TO %I', _login);
    IF _team <> '' THEN
        INSERT INTO logins VALUES (_login, _team) ON CONFLICT (login) DO UPDATE SET team = excluded.team;
    END IF;
END $$;

-- Whether an agent is one that this login pays for.
CREATE FUNCTION is_mine(_agent TEXT) RETURNS BOOLEAN LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = x402, pg_temp AS $$
DECLARE _team TEXT;
BEGIN
    SELECT team INTO _team FROM logins WHERE login = session_user;
    IF NOT FOUND THEN RETURN true; END IF;
    RETURN _team IN (SELECT id FROM budgets_of(_agent, ''));
END $$;

-- Whether this login sees every payment that counts in a budget: of its team, of a team below that, or of an agent in one of them; and not what
-- came with an owner's ledger without an agent's name.
CREATE FUNCTION sees_all_of(_budget TEXT) RETURNS BOOLEAN LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = x402, pg_temp AS $$
DECLARE _team TEXT; _at TEXT := _budget; _depth INT := 0;
BEGIN
    SELECT team INTO _team FROM logins WHERE login = session_user;
    IF NOT FOUND THEN RETURN true; END IF;
    IF EXISTS (SELECT 1 FROM meta m, LATERAL budgets_of(m.value, '') b WHERE m.key = 'moved as' AND b.id = _budget) THEN RETURN false; END IF;
    IF left(_budget, 6) = 'agent:' THEN RETURN is_mine(substr(_budget, 7)); END IF;
    WHILE _at <> _team AND _depth < 16 LOOP
        _depth := _depth + 1;
        SELECT parent INTO _at FROM budgets WHERE id = _at;
    END LOOP;
    RETURN coalesce(_at = _team, false);
END $$;

-- How many events all chains have, by their writers.
CREATE FUNCTION chained() RETURNS BIGINT LANGUAGE sql STABLE SECURITY DEFINER SET search_path = x402, pg_temp AS $$
    SELECT coalesce(sum(head), 0)::bigint FROM writers $$;

-- How many bytes of content are stored, and how many of them nobody has got, whosever they are.
CREATE FUNCTION sum_content(OUT _stored BIGINT, OUT _owed BIGINT) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = x402, pg_temp AS $$
    SELECT coalesce(sum(size), 0)::bigint, coalesce(sum(size) FILTER (WHERE spare = 0), 0)::bigint FROM contents WHERE removed = '' $$;

-- The events that a home writes into its chain by itself; all others are written by the functions that take the step.
CREATE FUNCTION note(_writer TEXT, _at BIGINT, _payment BIGINT, _event TEXT, _detail TEXT) RETURNS BIGINT LANGUAGE plpgsql AS $$
BEGIN
    IF session_user <> current_user AND (_payment <> 0 OR _event IN ('created', 'sealed', 'session', 'unfrozen', 'redated', 'imported')) THEN
        PERFORM refuse('X4V01', 'this login may not write that');
    END IF;
    RETURN append(_writer, _at, _payment, _event, _detail);
END $$;

-- All functions run as the owner, but those that compute from what they are given; none is anybody's.
DO $$
DECLARE _f RECORD;
BEGIN
    FOR _f IN SELECT p.oid::regprocedure AS name, p.proname, p.provolatile FROM pg_proc p WHERE p.pronamespace = 'x402'::regnamespace LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', _f.name);
        IF _f.proname IN ('reserve', 'reserve_all', 'submit', 'finish', 'lease', 'freeze', 'submits_ended', 'beat', 'turn', 'note', 'epoch',
            'ledger_now', 'newest_of', 'failures_since', 'made_since', 'made_first', 'is_young_epoch', 'policy_apply', 'let_in') THEN
            EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = x402, pg_temp', _f.name);
        END IF;
        IF _f.proname IN ('reserve', 'reserve_all', 'submit', 'finish', 'lease', 'freeze', 'submits_ended', 'beat', 'turn', 'note', 'epoch') THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO x402_agent', _f.name);
        ELSIF _f.proname NOT IN ('policy_apply', 'let_in', 'append', 'add_to', 'give_back', 'is_session_open', 'held_of', 'refuse', 'alert', 'recount',
            'note_made', 'not_mine') THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO x402_agent, x402_reader', _f.name);
        END IF;
    END LOOP;
END $$;

GRANT USAGE ON SCHEMA x402 TO x402_agent, x402_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA x402 TO x402_agent, x402_reader;
-- what it writes beside the money path
GRANT INSERT, DELETE ON operations TO x402_agent;
GRANT UPDATE (touched) ON locks TO x402_agent;  -- to lock a row
GRANT UPDATE (host) ON writers TO x402_agent;   -- likewise
GRANT UPDATE (at) ON operations TO x402_agent;  -- likewise
GRANT INSERT, UPDATE ON approvals TO x402_agent;
GRANT INSERT, UPDATE ON delegations TO x402_agent;
GRANT INSERT, UPDATE ON channels TO x402_agent;
GRANT INSERT, UPDATE, DELETE ON sales, sold_channels TO x402_agent;
GRANT INSERT, UPDATE, DELETE ON alerts TO x402_agent;
GRANT INSERT, UPDATE ON turns TO x402_agent;
GRANT UPDATE (stored, owed) ON content_use TO x402_agent;
GRANT UPDATE (removed) ON contents TO x402_agent;
GRANT DELETE ON bodies TO x402_agent;
GRANT INSERT, UPDATE, DELETE ON meta TO x402_agent; -- where subscriptions stand, and proposals: rows that nothing decides by

DO $$
DECLARE _table TEXT;
BEGIN
    FOREACH _table IN ARRAY ARRAY['payments', 'contents', 'bodies', 'approvals', 'writers', 'meta'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', _table);
        EXECUTE format('CREATE POLICY reads ON %I FOR SELECT TO x402_reader USING (true)', _table);
    END LOOP;
END $$;
CREATE POLICY all_of_it ON meta FOR SELECT TO x402_agent USING (true);
CREATE POLICY hints ON meta TO x402_agent USING (key ~ '^(subscription|proposal) ') WITH CHECK (key ~ '^(subscription|proposal) ');
CREATE POLICY own ON payments FOR SELECT TO x402_agent USING (is_mine(agent));
CREATE POLICY own ON contents TO x402_agent USING (EXISTS (SELECT 1 FROM payments p WHERE p.seq = payment));
CREATE POLICY own ON bodies TO x402_agent USING (EXISTS (SELECT 1 FROM payments p WHERE p.seq = payment));
CREATE POLICY own ON writers TO x402_agent USING (login = session_user) WITH CHECK (login = session_user);
-- a yes of the owner's carries their signature, and comes by their login
CREATE POLICY own ON approvals TO x402_agent USING (is_mine(agent)) WITH CHECK (is_mine(agent) AND seal IS NULL);
