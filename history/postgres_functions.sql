-- The money path of a fleet's ledger: one call a step. A step is repeated with the same payment id until its answer is known; its first
-- statement waits for an earlier call of the same step that still runs, and then finds what that did. A refusal is an error of class X4,
-- by which the statement, and all that it did, is undone:
--   X4M01 moved   X4F01 frozen   X4A01 already paying   X4S01 short of funds   X4L01 lease   X4T01 transition   X4N01 not there
--   X4K01 the same signature   X4C01 clocks apart   X4V01 a value that nobody may write   X4E01 a young epoch
--   X4O01 the ledger moves, or has moved
-- Rows are locked in one order, each by a statement of its own: own chain, budgets from the agent's up, hosts by name, the source.

-- The ledger's clock; who lives is asked of another, so that tests can set this one.
CREATE FUNCTION clock() RETURNS BIGINT LANGUAGE sql VOLATILE AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

CREATE FUNCTION real_clock() RETURNS BIGINT LANGUAGE sql VOLATILE AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- What each step calls is written in plpgsql, which plans a query once a session; a function in SQL is planned at each call, unless it is
-- written into its caller's query. A function whose answer nobody needs is called by an assignment, too: PERFORM is a query, which takes
-- longer than most of what is called. What only reads is STABLE, so that it sees what the question sees that it is a part of; called by
-- a function that is VOLATILE it sees all that was committed until that call. And a query is as flat as it can be: each node of its plan is
-- made anew at each call, and ORDER BY … LIMIT 1 has fewer of them than max().

-- The ledger's time is never before its newest payment: a clock set back opens no window again.
CREATE FUNCTION ledger_now() RETURNS BIGINT LANGUAGE plpgsql STABLE AS $$
DECLARE _newest BIGINT;
BEGIN
    SELECT created_at INTO _newest FROM payments ORDER BY created_at DESC LIMIT 1;
    RETURN greatest(clock(), _newest);
END $$;

-- When the newest payment of all was made, where it is of this session; else NULL. A session is all teams', so each login is told the same.
CREATE FUNCTION newest_of(_session TEXT) RETURNS BIGINT LANGUAGE plpgsql STABLE AS $$
DECLARE _newest RECORD;
BEGIN
    SELECT session, created_at INTO _newest FROM payments ORDER BY created_at DESC LIMIT 1;
    RETURN CASE _newest.session WHEN _session THEN _newest.created_at END;
END $$;

-- The commit of this transaction is waited for, whatever the login's or the server's settings say. What waits for more stays.
CREATE FUNCTION durable() RETURNS TEXT LANGUAGE sql AS $$
    SELECT CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN set_config('synchronous_commit', 'on', true) END $$;

-- Notes the timeline of the server: another one than before is a failover.
CREATE FUNCTION epoch() RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE _timeline TEXT := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
BEGIN
    IF NOT EXISTS (SELECT 1 FROM epochs WHERE timeline = _timeline) THEN
        PERFORM set_config('synchronous_commit', 'off', true); -- where it is lost it is noted again
        INSERT INTO alerts (id, kind, subject, win, at, detail, state, attempts, next_at) -- another server has the ledger now
            SELECT 'alr_' || md5(_timeline || real_clock()), 'epoch', _timeline, '', real_clock(), '{}', 'waiting', 0, 0
            WHERE EXISTS (SELECT 1 FROM epochs) ON CONFLICT (kind, subject, win) DO NOTHING;
        INSERT INTO epochs VALUES (_timeline, real_clock()) ON CONFLICT (timeline) DO NOTHING;
    END IF;
    RETURN _timeline;
END $$;

-- Whether there was a failover a short while ago.
CREATE FUNCTION is_young_epoch(_for BIGINT) RETURNS BOOLEAN LANGUAGE plpgsql VOLATILE AS $$
BEGIN RETURN _for IS NOT NULL AND (SELECT count(*) > 1 AND max(since) > real_clock() - _for FROM epochs); END $$;

-- The steps that a payment is known by, with one more.
CREATE FUNCTION and_step(_operations TEXT[], _operation TEXT) RETURNS TEXT[] LANGUAGE sql IMMUTABLE AS $$
    SELECT (_operation || _operations)[1:4] $$;

-- As SQLite's: where a text begins in another one, 0: nowhere.
CREATE FUNCTION instr(_in TEXT, _part TEXT) RETURNS INT LANGUAGE sql IMMUTABLE AS $$ SELECT strpos(_in, _part) $$;

-- Whether a payment counts in the budget that this login pays for.
CREATE FUNCTION not_mine(_budgets TEXT[]) RETURNS BOOLEAN LANGUAGE plpgsql STABLE AS $$
DECLARE _team TEXT;
BEGIN
    SELECT team INTO _team FROM logins WHERE login = session_user;
    RETURN FOUND AND _team <> ALL (_budgets);
END $$;

CREATE FUNCTION refuse(_state TEXT, _why TEXT, _detail JSON DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION USING ERRCODE = _state, MESSAGE = _why, DETAIL = _detail::text; END $$;

-- Refuses while the ledger is moved here or away, and for ever once it has moved away (movefleet.go). Whoever begins that waits for what is
-- under way, and keeps what comes later from this question until its answer is yes; so it has to be asked behind the first lock.
CREATE FUNCTION not_moving() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE _move TEXT;
BEGIN
    SELECT value INTO _move FROM meta WHERE key = 'move';
    IF FOUND THEN PERFORM refuse('X4O01', 'the ledger moves, or has moved', _move::json); END IF;
END $$;

-- The time of a change outside the money path.
CREATE FUNCTION change_time() RETURNS BIGINT LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM not_moving();
    RETURN ledger_now();
END $$;

-- A part of a link, with its length before it.
CREATE FUNCTION sized(_part BYTEA) RETURNS BYTEA LANGUAGE sql IMMUTABLE AS $$ SELECT int8send(octet_length(_part)) || _part $$;

-- Appends to the writer's chain. The hash is that of history.link.
CREATE FUNCTION append(_writer TEXT, _at BIGINT, _payment BIGINT, _event TEXT, _detail TEXT) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE _seq BIGINT; _sum BYTEA; _login TEXT;
    _link BYTEA := int8send(_at) || sized(convert_to(_payment::text, 'UTF8')) || sized(convert_to(_event, 'UTF8'))
        || sized(convert_to(_detail, 'UTF8'));
BEGIN
    UPDATE writers SET head = head + 1, hash = sha256(hash || _link) WHERE name = _writer RETURNING head, hash, login INTO _seq, _sum, _login;
    IF NOT FOUND THEN
        INSERT INTO writers (name, host, login) VALUES (_writer, '', session_user) ON CONFLICT (name) DO NOTHING;
        UPDATE writers SET head = head + 1, hash = sha256(hash || _link) WHERE name = _writer
            RETURNING head, hash, login INTO STRICT _seq, _sum, _login;
    END IF;
    PERFORM 1 FROM meta WHERE key = 'move';
    IF FOUND THEN PERFORM not_moving(); END IF;
    IF session_user <> current_user AND _login <> session_user THEN PERFORM refuse('X4V01', 'this chain is not of this login'); END IF;
    INSERT INTO audit (writer, seq, at, payment, event, detail, hash) VALUES (_writer, _seq, _at, _payment, _event, _detail::json, _sum);
    RETURN _seq;
END $$;

-- A time that is not before any event of a payment, so that its events are in the order of their times whatever the clock does.
CREATE FUNCTION after_events(_payment BIGINT, _at BIGINT) RETURNS BIGINT LANGUAGE plpgsql STABLE AS $$
DECLARE _last BIGINT;
BEGIN
    SELECT at INTO _last FROM audit WHERE payment = _payment ORDER BY at DESC LIMIT 1;
    RETURN greatest(_at, _last);
END $$;

-- The freezes that no lift has come up to, as freeze.go has it.
CREATE VIEW standing AS SELECT * FROM freezes WHERE seq > coalesce((SELECT upto FROM lifts ORDER BY upto DESC LIMIT 1), 0);

-- Whether a pattern ('research-*') stands for a name.
CREATE FUNCTION matches(_pattern TEXT, _name TEXT) RETURNS BOOLEAN LANGUAGE sql IMMUTABLE AS $$
    SELECT _name LIKE replace(replace(replace(replace(_pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%') $$;

CREATE FUNCTION covers(_entry TEXT, _host TEXT) RETURNS BOOLEAN LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN left(_entry, 1) = '*' THEN right(h, length(_entry) - 1) = substr(_entry, 2) ELSE lower(_entry) = lower(h) END
    FROM (SELECT CASE WHEN _entry ~ ':[0-9]+$' THEN _host ELSE regexp_replace(_host, ':[0-9]+$', '') END AS h) one $$;

-- The budgets that a payment counts in: its agent's own, what each agent of its name has, its team and that one's parents, the
-- organisation's, and the hosts'.
CREATE FUNCTION budget_list(_agent TEXT, _host TEXT) RETURNS budgets[] LANGUAGE plpgsql STABLE AS $$
DECLARE _list budgets[] := '{}'; _b budgets; _depth INT := 0;
BEGIN
    IF _agent <> '' THEN
        -- its own, and what each agent of such a name has: the least of each limit
        SELECT 'agent:' || _agent, NULL::text, '{}'::text[], min(per_call), min(session), min(day), min(month), min(rate), max(version)
            INTO _b FROM budgets WHERE id = 'agent:' || _agent OR left(id, 5) = 'each:' AND matches(substr(id, 6), _agent);
        IF _b.version IS NOT NULL THEN _list := _list || _b; END IF;
        SELECT b.* INTO _b FROM budgets b, unnest(b.members) AS m (pattern) WHERE left(b.id, 5) = 'team:' AND matches(m.pattern, _agent)
            ORDER BY (position('*' IN m.pattern) = 0) DESC, position('*' IN m.pattern || '*') DESC, b.id LIMIT 1; -- the most specific
        WHILE FOUND AND _depth < 16 LOOP
            _list := _list || _b;
            _depth := _depth + 1;
            SELECT * INTO _b FROM budgets WHERE id = _b.parent AND id <> 'org';
        END LOOP;
    END IF;
    RETURN _list || ARRAY(SELECT b FROM budgets b WHERE CASE WHEN left(id, 5) = 'host:' THEN covers(substr(id, 6), _host) ELSE id = 'org' END
        ORDER BY id <> 'org', id);
END $$;

CREATE FUNCTION budgets_of(_agent TEXT, _host TEXT) RETURNS SETOF budgets LANGUAGE plpgsql STABLE AS $$
BEGIN RETURN QUERY SELECT * FROM unnest(budget_list(_agent, _host)); END $$;

-- Each names its argument once, so that it is written into its caller's query.
CREATE FUNCTION second_of(_at BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE AS $$ SELECT _at / 1000000 * 1000000 $$;
CREATE FUNCTION day_of(_at BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE AS $$ SELECT _at / 86400000000 * 86400000000 $$;
CREATE FUNCTION month_of(_at BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(epoch FROM date_trunc('month', to_timestamp(_at / 1000000) AT TIME ZONE 'UTC')) * 1000000)::bigint $$;

-- Adds to a window, which begins with nothing in it. The CHECK of the table refuses what is over the cap.
CREATE FUNCTION add_to(_budget TEXT, _win TEXT, _starts BIGINT, _cap BIGINT, _usd BIGINT) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE _used BIGINT;
BEGIN
    UPDATE counters SET used = used + _usd WHERE budget = _budget AND win = _win AND starts = _starts RETURNING used INTO _used;
    IF NOT FOUND THEN
        INSERT INTO counters VALUES (_budget, _win, _starts, 0, _cap) ON CONFLICT (budget, win, starts) DO NOTHING;
        UPDATE counters SET used = used + _usd WHERE budget = _budget AND win = _win AND starts = _starts RETURNING used INTO _used;
    END IF;
    RETURN _used;
END $$;

-- Gives back to the windows that a payment counts in, those that are kept still.
CREATE FUNCTION give_back(_p payments, _usd BIGINT) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _id TEXT;
BEGIN
    IF _usd = 0 THEN RETURN; END IF;
    FOREACH _id IN ARRAY _p.budgets LOOP
        UPDATE counters SET used = used - _usd WHERE budget = _id AND win = 'session' AND starts = (SELECT number FROM sessions WHERE id = _p.session);
        UPDATE counters SET used = used - _usd WHERE budget = _id AND win = 'month' AND starts = month_of(_p.created_at);
        UPDATE counters SET used = used - _usd WHERE budget = _id AND win = 'day' AND starts = day_of(_p.created_at);
    END LOOP;
END $$;

-- The newest payments in a row, made after a time, that were signed and came to nothing, up to so many.
CREATE FUNCTION failures_since(_since BIGINT, _most BIGINT) RETURNS BIGINT LANGUAGE plpgsql STABLE AS $$
DECLARE _p RECORD; _n BIGINT := 0;
BEGIN
    FOR _p IN SELECT state, proof, delivered, chain_proof IS NOT NULL AS proven FROM payments WHERE created_at > _since
        ORDER BY created_at DESC, seq DESC LIMIT 200 LOOP
        EXIT WHEN _n >= _most OR _p.state = 'settled' AND _p.proof <> '';
        IF _p.state = 'unknown' AND _p.delivered = 0 OR _p.state = 'failed' AND _p.proven THEN _n := _n + 1; END IF;
    END LOOP;
    RETURN _n;
END $$;

-- How many payments were made after a time and up to another that count in a budget, but for one, which is the last or not noted yet: whole
-- seconds as they are kept in made, and the ends one by one. Nothing asks for more than an hour. What counts a range of times, and held_of,
-- is planned once a session, for any argument: planned for each by itself, in a long ledger, it takes ten times as long. (reserve sets that.)
CREATE FUNCTION made_since(_since BIGINT, _upto BIGINT, _budget TEXT, _except TEXT) RETURNS BIGINT LANGUAGE plpgsql STABLE
    SET plan_cache_mode = force_generic_plan AS $$
BEGIN RETURN made_within(_since, _upto, _budget, _except, 0); END $$;

-- Where they are less than a number it may be some more, but less than that: then the ends need not be counted.
CREATE FUNCTION made_within(_since BIGINT, _upto BIGINT, _budget TEXT, _except TEXT, _less BIGINT) RETURNS BIGINT LANGUAGE plpgsql STABLE AS $$
DECLARE _first BIGINT := second_of(_since); _last BIGINT := second_of(_upto); _all BIGINT; _inner BIGINT; _ends BIGINT;
BEGIN
    IF _less > 0 THEN
        SELECT sum(n) INTO _all FROM made WHERE budget = _budget AND starts >= _first AND starts <= _last;
        IF _all < _less THEN RETURN _all; END IF;
    END IF;
    SELECT (SELECT sum(n) FROM made WHERE budget = _budget AND starts > _first AND starts < _last), count(*) INTO _inner, _ends
        FROM (SELECT id, budgets FROM payments WHERE created_at > _since AND created_at < _first + 1000000
            UNION ALL SELECT id, budgets FROM payments WHERE created_at >= _last AND created_at <= _upto) ends
        WHERE id <> _except AND (_budget = 'org' OR _budget = ANY (budgets));
    IF _inner IS NULL THEN RETURN made_between(_since, _upto, _budget, _except); END IF; -- few, or nothing limits how often it pays
    RETURN _inner + _ends;
END $$;

CREATE FUNCTION made_between(_since BIGINT, _upto BIGINT, _budget TEXT, _except TEXT) RETURNS BIGINT LANGUAGE plpgsql STABLE AS $$
DECLARE _n BIGINT;
BEGIN
    SELECT count(*) INTO _n FROM payments WHERE created_at > _since AND created_at <= _upto AND id <> _except
        AND (_budget = 'org' OR _budget = ANY (budgets));
    RETURN _n;
END $$;

-- When the oldest of the newest so many of them was made.
CREATE FUNCTION made_first(_since BIGINT, _upto BIGINT, _budget TEXT, _except TEXT, _newest BIGINT) RETURNS BIGINT LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT min(created_at) FROM (SELECT created_at FROM payments WHERE created_at > _since AND created_at <= _upto
        AND id <> _except AND (_budget = 'org' OR _budget = ANY (budgets)) ORDER BY created_at DESC LIMIT _newest) one);
END $$;

-- Notes that a payment was made.
CREATE FUNCTION note_made(_budget TEXT, _at BIGINT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    UPDATE made SET n = n + 1 WHERE budget = _budget AND starts = second_of(_at);
    IF NOT FOUND THEN
        INSERT INTO made AS m VALUES (_budget, second_of(_at), 1) ON CONFLICT (budget, starts) DO UPDATE SET n = m.n + 1;
        DELETE FROM made WHERE budget = _budget AND starts < second_of(_at) - 7200000000;
    END IF;
    RETURN true;
END $$;

CREATE FUNCTION held_of(_source TEXT, _asset TEXT, _network TEXT, _since BIGINT, _except TEXT) RETURNS NUMERIC LANGUAGE plpgsql STABLE AS $$
DECLARE _held NUMERIC;
BEGIN
    SELECT sum(amount::numeric) INTO _held FROM (
        SELECT amount FROM payments WHERE source = _source AND asset = _asset AND network = _network AND id <> _except
            AND state IN ('reserved', 'submitted', 'unknown') AND (usd > 0 OR scheme <> 'batch-settlement')
        UNION ALL
        SELECT amount FROM payments WHERE source = _source AND asset = _asset AND network = _network AND id <> _except
            AND state = 'settled' AND updated_at BETWEEN _since AND 9223372036854775807 -- two ends: few rows, so by the index
            AND (usd > 0 OR scheme <> 'batch-settlement')) open;
    RETURN coalesce(_held, 0);
END $$;

-- Whether a session goes on. The newest payment is in it, which says when it was used last: it is not written with each payment, because
-- that would be one row that all of them write.
CREATE FUNCTION is_session_open(_now BIGINT, _idle BIGINT, _except TEXT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM sessions s WHERE ended = 0 AND _now - _idle < coalesce((SELECT CASE p.session WHEN s.id THEN p.created_at END
        FROM payments p WHERE p.id <> _except ORDER BY p.created_at DESC LIMIT 1), s.last_at));
END $$;

-- Whether something was signed that this key stands for.
CREATE FUNCTION is_remembered(_key TEXT) RETURNS BOOLEAN LANGUAGE plpgsql STABLE AS $$
BEGIN RETURN EXISTS (SELECT 1 FROM memory WHERE key = decode(_key, 'hex')); END $$;

-- Writes an alert, unless its cause has one already: see history.alert.
CREATE FUNCTION alert(_a JSONB, _kind TEXT, _at BIGINT, _detail TEXT) RETURNS void LANGUAGE sql AS $$
    INSERT INTO alerts (id, kind, subject, win, at, detail, state, attempts, next_at)
        VALUES (_a->>'id', _kind, _a->>'subject', _a->>'win', _at, _detail, 'waiting', 0, 0) ON CONFLICT (kind, subject, win) DO NOTHING $$;

-- Stops payments, of one account or of all; whoever submits from its commit on sees that. It waits for nothing that another login can hold for
-- longer than a moment: who freezes the same at once finds it, else it is frozen twice; and an alert that nobody lets it write is left out.
CREATE FUNCTION freeze(_q JSONB) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE
    _f JSONB := _q->'freeze'; _seq BIGINT; _now BIGINT := change_time(); _set TEXT := durable(); _patience TEXT := current_setting('lock_timeout');
BEGIN
    BEGIN
        _set := set_config('lock_timeout', '500ms', true);
        LOCK TABLE freezes IN SHARE UPDATE EXCLUSIVE MODE;
    EXCEPTION WHEN lock_not_available THEN NULL;
    END;
    _set := set_config('lock_timeout', _patience, true);
    IF EXISTS (SELECT 1 FROM standing WHERE network = _f->>'network' AND account = _f->>'account') THEN RETURN false; END IF;
    INSERT INTO freezes (network, account, at, by, why) VALUES (_f->>'network', _f->>'account', _now, _f->>'by', _f->>'why')
        RETURNING seq INTO _seq;
    _now := append(_q->>'writer', _now, 0, 'frozen', _q->>'detail');
    IF _q->'alert' IS NOT NULL THEN
        BEGIN
            _set := set_config('lock_timeout', '500ms', true);
            PERFORM alert(_q->'alert' || jsonb_build_object('win', _seq::text), 'freeze', ledger_now(), _q->'alert'->>'detail');
        EXCEPTION WHEN lock_not_available THEN NULL;
        END;
    END IF;
    RETURN true;
END $$;

-- Waits until what was being submitted when a freeze was committed is on disk, or is not; false: it waited for long enough.
CREATE FUNCTION submits_ended(_within BIGINT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true) || set_config('lock_timeout', _within || 'ms', true);
    PERFORM 1 FROM locks WHERE name = 'freeze' FOR UPDATE;
    RETURN true;
EXCEPTION WHEN lock_not_available THEN RETURN false;
END $$;

-- Micro-dollars as dollars, as text.
CREATE FUNCTION dollars(_usd BIGINT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$ SELECT trim_scale(_usd::numeric / 1000000)::text $$;

-- A limit of how often is paid, by a decision.
CREATE TYPE rate_limit AS (budget TEXT, most BIGINT, per BIGINT, not_before BIGINT);

-- Holds the money of a payment. What it answers with is all of the row that its caller has not said.
CREATE FUNCTION reserve(_q JSONB, OUT _seq BIGINT, OUT _session TEXT, OUT _created_at BIGINT) LANGUAGE plpgsql AS $$
DECLARE
    _p payments; _writer TEXT := _q->>'writer'; _now BIGINT; _s sessions; _b budgets; _c RECORD; _used BIGINT; _held NUMERIC; _value BYTEA;
    _seller JSONB := _q->'seller'; _a JSONB := _q->'approval'; _funds JSONB := _q->'funds'; _ids TEXT[] := '{}'; _same TEXT;
    _rated TEXT[] := '{org}'; _rates BIGINT[] := '{NULL}'; _ever CONSTANT BIGINT := 9223372036854775807;
    _list budgets[]; _r rate_limit; _team TEXT; _frozen BOOLEAN; _idle CONSTANT BIGINT := 28800000000; -- budget.SessionIdle
    _set TEXT; _done BOOLEAN; _number BIGINT;
BEGIN
    -- the submit's commit is waited for, and lies behind this one in the log
    _set := set_config('synchronous_commit', 'off', true) || set_config('plan_cache_mode', 'force_generic_plan', true);
    _p := jsonb_populate_record(NULL::payments, _q->'payment');
    SELECT greatest(clock(), newest.created_at), s.id, s.number, s.cap, CASE newest.session WHEN s.id THEN newest.created_at ELSE s.last_at END,
            (SELECT team FROM logins WHERE login = session_user), -- as is_mine asks
            EXISTS (SELECT 1 FROM standing WHERE account = '' OR network = _p.network AND account = _p.source)
        INTO _now, _s.id, _s.number, _s.cap, _s.last_at, _team, _frozen
        FROM (SELECT 1) one LEFT JOIN (SELECT created_at, session FROM payments ORDER BY created_at DESC LIMIT 1) newest ON true
            LEFT JOIN sessions s ON s.ended = 0;
    LOCK TABLE payments IN ROW EXCLUSIVE MODE; -- as the INSERT would: from here on the owner's budgets are the same until this commits
    _list := budget_list(_p.agent, _p.host);
    FOREACH _b IN ARRAY _list LOOP _ids := _ids || _b.id; END LOOP;
    -- the id first: who says the same again waits here for the earlier call, and then finds what it did
    INSERT INTO payments (id, session, state, created_at, updated_at, fingerprint, idempotency_key, method, url, target, host, network,
        scheme, dialect, asset, symbol, amount, usd, pay_to, source, record, lease_owner, waiter, prefix_length, agent, budgets)
    VALUES (_p.id, coalesce(nullif(_q->>'session', ''), _q->>'newSession'), 'reserved', _now, _now, _p.fingerprint, _p.idempotency_key,
        _p.method, _p.url, _p.target, _p.host, _p.network, _p.scheme, _p.dialect, _p.asset, _p.symbol, _p.amount, _p.usd, _p.pay_to,
        _p.source, _p.record, _p.lease_owner, _p.lease_owner, _p.prefix_length, _p.agent, _ids)
    ON CONFLICT (id) DO NOTHING RETURNING seq, session INTO _seq, _session;
    IF NOT FOUND THEN
        SELECT seq, session, created_at, budgets INTO _seq, _session, _created_at, _ids FROM payments WHERE id = _p.id;
        IF _team <> ALL (_ids) THEN PERFORM refuse('X4V01', 'another login''s payment has this id'); END IF;
        RETURN;
    END IF;
    _created_at := _now;
    -- here alone: a CHECK is read anew at each change
    IF _p.usd < 0 THEN PERFORM refuse('X4V01', 'an amount below nothing'); END IF;
    IF _p.amount !~ '^(0|[1-9][0-9]{0,77})$' OR length(_p.amount) = 78 AND _p.amount COLLATE "C" >= (2::numeric ^ 256)::numeric(78)::text THEN
        PERFORM refuse('X4V01', 'an amount that is no number of 256 bits'); -- which nobody could read, or which would free what is held
    END IF;
    IF _q ? 'settle' AND is_young_epoch((_q->>'settle')::bigint) THEN PERFORM refuse('X4E01', 'the server failed over'); END IF;
    IF abs((_q->>'clock')::bigint - clock()) > (_q->>'tolerance')::bigint THEN
        PERFORM refuse('X4C01', 'the clocks are apart', json_build_object('server', clock()));
    END IF;
    IF (_q->>'resume')::boolean THEN
        SELECT id INTO _same FROM payments WHERE fingerprint = _p.fingerprint AND id <> _p.id AND waiter = ''
            AND delivered = 0 AND (state IN ('reserved', 'submitted', 'unknown') OR state = 'settled') ORDER BY created_at DESC LIMIT 1;
        IF FOUND THEN PERFORM refuse('X4A01', 'it is made already', json_build_object('id', _same)); END IF;
    END IF;
    IF _frozen THEN PERFORM refuse('X4F01', 'it is frozen'); END IF;

    -- the session that the decision was made for, or a new one
    IF (CASE WHEN _now - _s.last_at < _idle THEN _s.id ELSE '' END) IS DISTINCT FROM _q->>'session' THEN
        PERFORM refuse('X4M01', 'a session began or ended');
    END IF;
    IF _q->>'session' = '' THEN
        PERFORM 1 FROM locks WHERE name = 'session' FOR UPDATE;
        IF is_session_open(_now, _idle, _p.id) THEN PERFORM refuse('X4M01', 'a session began'); END IF;
        UPDATE sessions SET ended = 1 WHERE ended = 0;
        INSERT INTO sessions (id, started_at, last_at, cap) VALUES (_session, _now, _now, (_q->>'sessionCap')::bigint) RETURNING * INTO _s;
        PERFORM append(_writer, _now, 0, 'session', _q->>'sessionDetail');
    END IF;
    _number := append(_writer, _now, _seq, 'reserved', _q->>'detail');

    -- the owner's budgets, and the caps of the decision, which may be lower
    FOREACH _b IN ARRAY _list LOOP
        IF _p.usd > _b.per_call THEN PERFORM refuse('X4M01', 'a limit for one call was lowered'); END IF;
        IF _b.id = 'org' THEN _rates[1] := _b.rate;
        ELSIF _b.rate IS NOT NULL THEN _rated := _rated || _b.id; _rates := _rates || _b.rate; END IF;
        CONTINUE WHEN _p.usd = 0; -- and not where its caller says so: what was not counted would be given back
        IF _b.session IS NOT NULL OR _b.id = 'org' AND _s.cap IS NOT NULL THEN
            _used := add_to(_b.id, 'session', _s.number, coalesce(_b.session, _s.cap), _p.usd);
        END IF;
        IF _b.month IS NOT NULL THEN _used := add_to(_b.id, 'month', month_of(_now), _b.month, _p.usd); END IF;
        IF _b.day IS NOT NULL THEN
            _used := add_to(_b.id, 'day', day_of(_now), _b.day, _p.usd);
        END IF;
    END LOOP;
    IF _team <> ALL (_ids) THEN PERFORM refuse('X4V01', 'this login does not pay for the agent ' || _p.agent); END IF;
    IF _ids = '{}' THEN PERFORM refuse('X4V01', 'the owner has set no budget'); END IF;
    FOR _c IN SELECT c.*, (SELECT max(used) FROM counters WHERE budget = c.budget AND win IN ('day', 'month') AND starts = c.starts
            AND (win = c.win OR c.win = 'month')) AS used
        FROM jsonb_to_recordset(_q->'caps') AS c (budget TEXT, win TEXT, starts BIGINT, "limit" BIGINT, alert JSONB) LOOP
        _used := _c.used;
        IF _c.starts > _now THEN PERFORM refuse('X4M01', 'the clock was set back'); END IF;
        IF coalesce(_used, _p.usd) > _c."limit" THEN PERFORM refuse('X4M01', 'a budget was used up'); END IF;
        IF _used >= _c."limit" - _c."limit" / 5 AND _used - _p.usd < _c."limit" - _c."limit" / 5 THEN
            PERFORM alert(_c.alert, 'budget', _now, json_build_object('used', dollars(_used), 'limit', dollars(_c."limit"))::text);
        END IF;
    END LOOP;
    IF _q->'low'->>'id' IS NOT NULL THEN PERFORM alert(_q->'low', 'funds', _now, _q->'low'->>'detail'); END IF;
    -- the rates, which are right because all who hold money have locked the organisation's row before they count
    PERFORM 1 FROM budgets WHERE id = 'org' FOR UPDATE; -- one row on both sides of any border, also for what costs nothing
    FOR _i IN 1 .. array_length(_rated, 1) LOOP
        CONTINUE WHEN _rates[_i] IS NULL;
        IF made_within(_now - 60000000, _ever, _rated[_i], _p.id, _rates[_i]) >= _rates[_i] THEN PERFORM refuse('X4M01', 'others paid'); END IF;
    END LOOP;
    FOR _i IN 0 .. jsonb_array_length(_q->'rates') - 1 LOOP
        _r := jsonb_populate_record(NULL::rate_limit, _q->'rates'->_i);
        CONTINUE WHEN _r.per = 60000000 AND _r.most >= _rates[array_position(_rated, _r.budget)]; -- it is counted already
        IF made_within(greatest(_now - _r.per, _r.not_before), _ever, _r.budget, _p.id, _r.most) >= _r.most THEN
            PERFORM refuse('X4M01', 'others paid');
        END IF;
    END LOOP;
    FOR _i IN 1 .. array_length(_rated, 1) LOOP _done := note_made(_rated[_i], _now); END LOOP;
    IF (_q->>'maxFailures')::bigint > 0 AND
        failures_since((_q->>'failuresSince')::bigint, (_q->>'maxFailures')::bigint) >= (_q->>'maxFailures')::bigint THEN
        PERFORM refuse('X4M01', 'payments came to nothing');
    END IF;

    -- what the owner's rules compare of a payee and a price
    IF (_seller->>'known')::boolean AND NOT is_remembered(_seller->>'payeeKey') OR (_seller->>'unchanged')::boolean
        AND NOT is_remembered(_seller->>'hereKey') AND is_remembered(_seller->>'sellerKey') THEN
        PERFORM refuse('X4M01', 'the payee''s history changed');
    END IF;
    IF _seller->>'minPrice' IS NOT NULL THEN
        SELECT value INTO _value FROM memory WHERE key = decode(_seller->>'priceKey', 'hex');
        IF FOUND AND _value < decode(_seller->>'minPrice', 'hex') THEN PERFORM refuse('X4M01', 'the last price changed'); END IF;
    END IF;

    IF _a->>'id' IS NOT NULL THEN
        UPDATE approvals SET state = 'used', payment = _p.id WHERE id = _a->>'id' AND agent = _p.agent AND state = 'approved' AND expires_at > _now
            AND expires_at = (_a->>'expires')::bigint AND coalesce(seal, '') = decode(_a->>'seal', 'hex');
        IF NOT FOUND THEN PERFORM refuse('X4M01', 'the approval was used up or taken back'); END IF;
        PERFORM append(_writer, _now, _seq, 'approval used', _a->>'detail');
    END IF;

    IF _funds->>'free' IS NOT NULL THEN
        PERFORM 1 FROM sources WHERE source = _funds->>'source' AND asset = _p.asset AND network = _p.network FOR UPDATE;
        IF NOT FOUND THEN
            INSERT INTO sources VALUES (_funds->>'source', _p.asset, _p.network) ON CONFLICT DO NOTHING;
            PERFORM 1 FROM sources WHERE source = _funds->>'source' AND asset = _p.asset AND network = _p.network FOR UPDATE;
        END IF;
        -- the reading is of the wallet's clock, and what was settled since of this one
        _held := held_of(_funds->>'source', _p.asset, _p.network, (_funds->>'readAt')::bigint + clock() - (_q->>'clock')::bigint, _p.id);
        IF _held + _p.amount::numeric > (_funds->>'free')::numeric THEN
            PERFORM refuse('X4S01', 'the chain does not cover it', json_build_object('held', _held::text));
        END IF;
    END IF;
    IF _q->'delegated' IS NOT NULL THEN
        INSERT INTO delegations VALUES (_p.network, _q->'delegated'->>'account', _q->'delegated'->>'largest')
            ON CONFLICT (network, account) DO UPDATE SET largest = excluded.largest
            WHERE excluded.largest::numeric > delegations.largest::numeric;
        IF FOUND THEN PERFORM append(_writer, _now, 0, 'delegation', _q->'delegated'->>'detail'); END IF;
    END IF;
END $$;

-- Holds several payments, or none of them: what is refused says in its hint which one it was about, counted from 1.
CREATE FUNCTION reserve_all(_list JSONB) RETURNS TABLE (_seq BIGINT, _session TEXT, _created_at BIGINT) LANGUAGE plpgsql AS $$
DECLARE
    _q JSONB; _at INT := 0; _state TEXT; _why TEXT; _detail TEXT; _constraint TEXT;
BEGIN
    FOR _q IN SELECT value FROM jsonb_array_elements(_list) LOOP
        _at := _at + 1;
        RETURN QUERY SELECT * FROM reserve(_q);
    END LOOP;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS _state = RETURNED_SQLSTATE, _why = MESSAGE_TEXT, _detail = PG_EXCEPTION_DETAIL, _constraint = CONSTRAINT_NAME;
    RAISE EXCEPTION USING ERRCODE = _state, MESSAGE = _why, DETAIL = _detail, CONSTRAINT = _constraint, HINT = _at::text;
END $$;

-- What of these entries is not remembered yet.
CREATE FUNCTION remember(_entries JSONB) RETURNS SETOF memory LANGUAGE sql STABLE AS $$
    SELECT e.key, e.value FROM (SELECT decode(key, 'hex') AS key, decode(value, 'hex') AS value
        FROM jsonb_to_recordset(_entries) AS m (key TEXT, value TEXT)) e
    WHERE (SELECT m.value FROM memory m WHERE m.key = e.key) IS DISTINCT FROM e.value $$;

-- reserved → submitted, or the bytes of what the unlock agent has signed.
CREATE FUNCTION submit(_q JSONB) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE _p RECORD; _now BIGINT := clock(); _unique BYTEA := decode(_q->>'unique', 'hex'); _set TEXT := durable();
BEGIN
    PERFORM 1 FROM locks WHERE name = 'freeze' FOR SHARE; -- a freeze that has returned is seen
    SELECT seq, state, unique_key, budgets, _q->>'operation' = ANY (operations) AS repeated,
        _q->>'leaseOwner' IS NOT NULL AND (lease_owner <> _q->>'leaseOwner' OR _q->>'leaseOwner' = '') AS elsewhere,
        EXISTS (SELECT 1 FROM standing f WHERE f.account = '' OR f.network = p.network AND f.account = p.source) AS frozen,
        concat_ws(E'\n', session, created_at, encode(fingerprint, 'hex'), method, url, target, host, network, scheme, dialect, asset, symbol, amount,
            usd, pay_to, source, agent, coalesce(idempotency_key, '')) AS held -- as history.heldAs says it
        INTO _p FROM payments p WHERE id = _q->>'id' FOR UPDATE;
    IF NOT FOUND OR not_mine(_p.budgets) THEN PERFORM refuse('X4N01', 'there is no such payment'); END IF;
    IF _p.repeated THEN RETURN 0; END IF; -- said before, and the answer was lost
    IF _p.elsewhere THEN PERFORM refuse('X4L01', 'another process works on it'); END IF;
    IF _p.frozen THEN PERFORM refuse('X4F01', 'it is frozen'); END IF;
    IF _p.state = 'submitted' AND _p.unique_key = _unique AND (_q->>'completes')::boolean THEN -- the unlock agent signed it
        UPDATE payments SET record = decode(_q->>'record', 'base64'), operations = and_step(operations, _q->>'operation') WHERE seq = _p.seq;
        RETURN append(_q->>'writer', after_events(_p.seq, _now), _p.seq, 'submitted', _q->>'storedDetail');
    END IF;
    -- where nobody has read it again since it was held
    IF _p.held <> _q->>'held' THEN PERFORM refuse('X4M01', 'it is not as it was held'); END IF;
    IF _p.state <> 'reserved' THEN
        IF EXISTS (SELECT 1 FROM payments WHERE unique_key = _unique) THEN PERFORM refuse('X4K01', 'the same signature is there'); END IF;
        PERFORM refuse('X4T01', (_q->>'id') || ' is ' || _p.state);
    END IF;
    UPDATE payments SET state = 'submitted', updated_at = _now, unique_key = _unique, record = decode(_q->>'record', 'base64'),
        operations = and_step(operations, _q->>'operation') WHERE seq = _p.seq;
    -- an upsert locks the row also where it changes nothing, until this commit is on disk, and who buys from one seller has one row
    IF EXISTS (SELECT 1 FROM remember(_q->'memory')) THEN
        INSERT INTO memory SELECT * FROM remember(_q->'memory') ORDER BY key -- as all others lock them
            ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE memory.value <> excluded.value;
    END IF;
    RETURN append(_q->>'writer', after_events(_p.seq, _now), _p.seq, 'signed', _q->>'detail');
END $$;

-- What became known of a payment; in the states that the table in payment.go allows.
CREATE FUNCTION finish(_q JSONB, _body BYTEA) RETURNS SETOF payments LANGUAGE plpgsql AS $$
DECLARE
    _p payments; _now BIGINT := clock(); _to TEXT := _q->>'state'; _kept BIGINT := 0; _detail JSONB; _c JSONB := _q->'content';
    _charged TEXT := _q->>'charged'; _proven BOOLEAN; _false BOOLEAN; _set TEXT := durable(); _number BIGINT;
BEGIN
    SELECT * INTO _p FROM payments WHERE id = _q->>'id' FOR UPDATE;
    IF NOT FOUND OR not_mine(_p.budgets) THEN PERFORM refuse('X4N01', 'there is no such payment'); END IF;
    IF _q->>'operation' = ANY (_p.operations) THEN
        RETURN NEXT _p; -- said before, and the answer was lost
        RETURN;
    END IF;
    IF (_q->>'leaseOwner') IS NOT NULL AND (_p.lease_owner <> _q->>'leaseOwner' OR _q->>'leaseOwner' = '') THEN
        PERFORM refuse('X4L01', 'another process works on it');
    END IF;
    IF _c->>'status' IS NOT NULL THEN
        INSERT INTO contents (payment, http_status, type, truncated, size, sha256, spare) VALUES (_p.seq, (_c->>'status')::bigint, _c->>'type',
            (_c->>'truncated')::bigint, octet_length(_body), sha256(_body),
            (_p.delivered = 1 OR _p.state = 'failed' OR (_c->>'status')::bigint NOT BETWEEN 200 AND 299)::int)
        ON CONFLICT (payment) DO UPDATE SET http_status = excluded.http_status, type = excluded.type, truncated = excluded.truncated,
            size = excluded.size, sha256 = excluded.sha256, spare = excluded.spare, removed = ''
            WHERE contents.http_status NOT BETWEEN 200 AND 299 OR excluded.http_status BETWEEN 200 AND 299;
        GET DIAGNOSTICS _kept = ROW_COUNT;
        IF _kept > 0 THEN
            INSERT INTO bodies VALUES (_p.seq, _body) ON CONFLICT (payment) DO UPDATE SET body = excluded.body;
        END IF;
    END IF;
    IF _p.state = 'settled' AND _to = 'unknown' THEN -- nothing new of its state
        IF _kept > 0 THEN PERFORM append(_q->>'writer', after_events(_p.seq, _now), _p.seq, 'content', _q->>'contentDetail'); END IF;
        RETURN QUERY UPDATE payments SET operations = and_step(operations, _q->>'operation'),
            lease_owner = CASE WHEN (_q->>'releaseLease')::boolean THEN '' ELSE lease_owner END,
            waiter = CASE WHEN (_q->>'clearWaiter')::boolean THEN '' ELSE waiter END WHERE seq = _p.seq RETURNING *;
        RETURN;
    END IF;
    IF NOT (_p.state, _to) IN (('reserved', 'failed'), ('submitted', 'settled'), ('submitted', 'failed'), ('submitted', 'unknown'),
        ('unknown', 'unknown'), ('unknown', 'settled'), ('unknown', 'failed'), ('settled', 'settled'), ('settled', 'failed'))
        OR _p.state = 'settled' AND _p.proof = 'chain' AND _to = 'failed'
        OR _p.state = 'reserved' AND (_q->>'release')::boolean IS NOT TRUE OR _p.state <> 'reserved' AND (_q->>'release')::boolean THEN
        PERFORM refuse('X4T01', _p.id || ' from ' || _p.state || ' to ' || _to);
    END IF;
    _proven := _p.proof = 'chain' AND _to = 'settled'; -- the chain's word stands
    _false := _p.false_receipt = 1 OR coalesce((_q->>'falseReceipt')::boolean, false) OR _p.state = 'settled' AND _to = 'failed';
    _detail := (_q->>'detail')::jsonb;
    IF _proven THEN _detail := (_detail || '{"proof": "chain"}') - 'transaction'; END IF;
    IF _false THEN _detail := _detail || '{"falseReceipt": true}'; END IF;
    IF _p.delivered = 1 THEN _detail := _detail || '{"delivered": true}'; END IF;
    IF _kept > 0 THEN _detail := _detail || (_q->>'contentDetail')::jsonb; END IF;
    IF _charged IS NOT NULL THEN
        IF _p.charged <> '' OR _p.proof = 'chain' THEN PERFORM refuse('X4T01', _p.id || ' was charged already'); END IF;
        IF (_q->>'returned')::bigint NOT BETWEEN 0 AND _p.usd THEN PERFORM refuse('X4V01', 'more is given back than was held'); END IF;
        PERFORM append(_q->>'writer', after_events(_p.seq, _now), _p.seq, 'charged',
            json_build_object('charged', _charged, 'returned', (_q->>'returned')::bigint)::text);
    END IF;
    _number := append(_q->>'writer', after_events(_p.seq, _now), _p.seq, _to, _detail::text);
    IF _to = 'failed' THEN
        PERFORM give_back(_p, _p.usd - _p.returned);
        IF _p.unique_key IS NULL THEN
            UPDATE approvals SET state = 'approved', payment = '' WHERE payment = _p.id AND state = 'used'
                AND NOT EXISTS (SELECT 1 FROM approvals o WHERE o.quote = approvals.quote AND o.state IN ('pending', 'approved', 'denied'));
            IF FOUND THEN
                PERFORM append(_q->>'writer', after_events(_p.seq, _now), _p.seq, 'approval returned', json_build_object('payment', _p.id)::text);
            END IF;
        ELSIF (_q->>'forgetKey')::boolean THEN -- history.idempotencyKey
            DELETE FROM memory WHERE key = sha256(sized('idempotency key') || sized(convert_to(_p.idempotency_key, 'UTF8'))
                || sized(convert_to(_p.agent, 'UTF8'))) AND value = convert_to(_p.id, 'UTF8');
        END IF;
        UPDATE contents SET spare = 1 WHERE payment = _p.seq;
    ELSIF _charged IS NOT NULL AND (_q->>'returned')::bigint > _p.returned THEN
        PERFORM give_back(_p, (_q->>'returned')::bigint - _p.returned);
    END IF;
    RETURN QUERY UPDATE payments SET state = _to, note = _q->>'note', updated_at = _now,
        proof = CASE WHEN _proven THEN 'chain' ELSE _q->>'proof' END,
        transaction_id = CASE WHEN _proven THEN transaction_id ELSE coalesce(nullif(_q->>'transaction', ''), transaction_id) END,
        facilitator = coalesce(nullif(_q->>'facilitator', ''), facilitator), receipt = coalesce(decode(_q->>'receipt', 'base64'), receipt),
        chain_proof = coalesce(decode(_q->>'chainProof', 'base64'), chain_proof), false_receipt = _false::int,
        charged = coalesce(_charged, charged), returned = CASE WHEN _charged IS NULL THEN returned ELSE (_q->>'returned')::bigint END,
        operations = and_step(operations, _q->>'operation'),
        lease_owner = CASE WHEN (_q->>'releaseLease')::boolean THEN '' ELSE lease_owner END,
        waiter = CASE WHEN (_q->>'clearWaiter')::boolean THEN '' ELSE waiter END WHERE seq = _p.seq RETURNING *;
END $$;

-- Who works on a payment, who waits for it, and that its answer was delivered: nothing of it need outlive a power cut.
CREATE FUNCTION lease(_q JSONB) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE _p payments; _do TEXT := _q->>'do'; _now BIGINT := clock(); _set TEXT; _number BIGINT;
BEGIN
    _set := set_config('synchronous_commit', 'off', true);
    SELECT * INTO _p FROM payments WHERE id = _q->>'id' FOR UPDATE;
    IF NOT FOUND OR not_mine(_p.budgets) THEN RETURN 0; END IF;
    -- said before, and the answer was lost: it takes nothing from who has it by now
    IF _do IN ('acquire', 'release', 'clear') AND _q->>'operation' = ANY (_p.operations) THEN RETURN 1; END IF;
    CASE _do
    WHEN 'acquire' THEN
        IF _p.lease_owner <> _q->>'from' THEN RETURN 0; END IF;
        UPDATE payments SET lease_owner = _q->>'by', waiter = _q->>'by', operations = and_step(operations, _q->>'operation')
            WHERE id = _p.id;
    WHEN 'release' THEN
        IF _p.lease_owner <> _q->>'by' THEN RETURN 0; END IF; -- who came back from where it was cut off
        UPDATE payments SET lease_owner = '', operations = and_step(operations, _q->>'operation') WHERE id = _p.id;
    WHEN 'clear' THEN UPDATE payments SET waiter = '', operations = and_step(operations, _q->>'operation') WHERE id = _p.id;
    WHEN 'deliver' THEN
        UPDATE payments SET delivered = 1, waiter = '' WHERE id = _p.id AND (delivered = 0 OR waiter <> '');
        IF _p.delivered = 0 THEN
            UPDATE contents SET spare = 1 WHERE payment = _p.seq;
            _number := append(_q->>'writer', after_events(_p.seq, _now), _p.seq, 'delivered', '{}');
        END IF;
    WHEN 'key' THEN
        IF _p.state = 'failed' THEN RETURN 0; END IF;
        IF _p.idempotency_key IS NOT NULL THEN RETURN (_p.idempotency_key = _q->>'key')::int; END IF;
        UPDATE payments SET idempotency_key = _q->>'key' WHERE id = _p.id;
        PERFORM append(_q->>'writer', after_events(_p.seq, _now), _p.seq, 'keyed', json_build_object('key', _q->>'key')::text);
    END CASE;
    RETURN 1;
END $$;

-- A process that works or waits says that it lives, or its home that it ended; no other login says that of it. What a payment that is open
-- names is kept, so that nobody else says it.
CREATE FUNCTION beat(_id TEXT, _agent TEXT, _host TEXT, _for BIGINT) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE _until BIGINT := real_clock() + least(_for, 60000000); -- history.aliveFor, twice
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE instances SET until = _until WHERE id = _id AND login = session_user;
    IF NOT FOUND THEN
        INSERT INTO instances AS i VALUES (_id, _agent, _host, _until, session_user)
            ON CONFLICT (id) DO UPDATE SET until = _until WHERE i.login = session_user;
        IF NOT FOUND THEN PERFORM refuse('X4V01', 'this process is not of this login'); END IF;
        DELETE FROM instances WHERE id IN (SELECT id FROM instances i WHERE until < real_clock() - 86400000000 AND NOT EXISTS (
            SELECT 1 FROM payments p WHERE p.state IN ('reserved', 'submitted', 'unknown') AND i.id IN (p.lease_owner, p.waiter))
            FOR UPDATE SKIP LOCKED);
    END IF;
    RETURN real_clock();
END $$;

-- Who does alone what one process at a time does: takes a turn that nobody has, makes it last, or leaves it. Answers with the turn's fence;
-- 0: somebody else has it.
CREATE FUNCTION turn(_do TEXT, _name TEXT, _holder TEXT, _for BIGINT) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE _fence BIGINT;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF _do = 'take' THEN
        INSERT INTO turns VALUES (_name, _holder, real_clock() + _for, 1) ON CONFLICT (name) DO UPDATE
            SET holder = _holder, until = real_clock() + _for, fence = turns.fence + 1
            WHERE turns.until <= real_clock() OR turns.holder = _holder RETURNING fence INTO _fence;
    ELSE
        UPDATE turns SET until = CASE _do WHEN 'renew' THEN real_clock() + _for ELSE 0 END
            WHERE name = _name AND holder = _holder RETURNING fence INTO _fence;
    END IF;
    RETURN coalesce(_fence, 0);
END $$;

-- Whose budgets a payment counts in: its agent's. One that came with an owner's ledger and has no agent's name is of the agent that the
-- owner named then.
CREATE FUNCTION counts_for(_p payments) RETURNS TEXT LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF _p.agent <> '' THEN RETURN _p.agent; END IF;
    RETURN coalesce((SELECT value FROM meta WHERE key = 'moved as'
        AND _p.seq <= (SELECT value::bigint FROM meta WHERE key = 'moved up to')), '');
END $$;

-- What was used since a time, in one session or in all, by the agent that it counts for, and by host.
CREATE FUNCTION used_since(_since BIGINT, _session TEXT, OUT agent TEXT, OUT host TEXT, OUT usd BIGINT) RETURNS SETOF RECORD LANGUAGE sql STABLE AS $$
    SELECT counts_for(p), p.host, sum(p.usd - p.returned)::bigint FROM payments p WHERE p.created_at >= _since AND p.state <> 'failed'
        AND (_session = '' OR p.session = _session) GROUP BY 1, 2 $$;

-- What counts in the windows that are open, added up anew: a payment counts in the budgets that are now its. They are asked for once for
-- each agent and host, and a payment whose budgets are the same is not written.
CREATE FUNCTION recount(_now BIGINT) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _s sessions; _since BIGINT;
BEGIN
    SELECT * INTO _s FROM sessions WHERE ended = 0;
    _since := least(month_of(_now), coalesce(_s.started_at, _now));
    UPDATE payments p SET budgets = now.ids FROM (
        SELECT agent, host, (SELECT coalesce(array_agg(b.id), '{}') FROM budgets_of(of.agent, of.host) b) AS ids
        FROM (SELECT DISTINCT counts_for(q) AS agent, q.host FROM payments q WHERE q.created_at >= _since) of) now
        WHERE p.created_at >= _since AND counts_for(p) = now.agent AND p.host = now.host AND p.budgets <> now.ids;
    DELETE FROM counters; -- what is over is asked for no more
    DELETE FROM made;
    INSERT INTO made SELECT b.id, p.starts, sum(p.n) FROM (
            SELECT counts_for(q) AS agent, q.host, second_of(q.created_at) AS starts, count(*) AS n FROM payments q
            WHERE q.created_at >= _now - 7200000000 GROUP BY 1, 2, 3) p,
        LATERAL (SELECT id FROM budgets_of(p.agent, p.host) WHERE rate IS NOT NULL UNION SELECT 'org') b GROUP BY b.id, p.starts;
    INSERT INTO counters SELECT b.id, 'day', day_of(_now), sum(p.usd), greatest(b.day, sum(p.usd))
        FROM used_since(day_of(_now), '') p, LATERAL budgets_of(p.agent, p.host) b WHERE b.day IS NOT NULL GROUP BY b.id, b.day;
    INSERT INTO counters SELECT b.id, 'month', month_of(_now), sum(p.usd), greatest(b.month, sum(p.usd))
        FROM used_since(month_of(_now), '') p, LATERAL budgets_of(p.agent, p.host) b WHERE b.month IS NOT NULL GROUP BY b.id, b.month;
    INSERT INTO counters SELECT b.id, 'session', _s.number, sum(p.usd), greatest(coalesce(b.session, _s.cap), sum(p.usd))
        FROM used_since(_s.started_at, _s.id) p, LATERAL budgets_of(p.agent, p.host) b
        WHERE b.session IS NOT NULL OR b.id = 'org' AND _s.cap IS NOT NULL GROUP BY b.id, b.session;
END $$;

-- The owner's rules: the tree of budgets of a version, and their caps on the windows that are open. A cap is never below what is used.
CREATE FUNCTION policy_apply(_q JSONB) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE _version BIGINT := (_q->>'version')::bigint; _now BIGINT; _last BIGINT;
BEGIN
    PERFORM durable();
    PERFORM 1 FROM locks WHERE name = 'ledger' FOR UPDATE;
    SELECT coalesce(max(version), 0) INTO _last FROM rules;
    IF _version = _last AND EXISTS (SELECT 1 FROM rules WHERE version = _version AND seal = decode(_q->>'seal', 'base64')) THEN
        RETURN _version; -- said before
    END IF;
    IF _version <> _last + 1 THEN PERFORM refuse('X4M01', 'other rules were sealed meanwhile'); END IF;
    _now := ledger_now();
    INSERT INTO rules VALUES (_version, _now, decode(_q->>'config', 'base64'), decode(_q->>'seal', 'base64'));
    LOCK TABLE payments IN EXCLUSIVE MODE; -- nobody holds money while the caps change, or has begun to
    DELETE FROM budgets;
    INSERT INTO budgets SELECT b.id, b.parent, coalesce(b.members, '{}'), b.per_call, b.session, b.day, b.month, b.rate, _version
        FROM jsonb_to_recordset(_q->'budgets') AS b (id TEXT, parent TEXT, members TEXT[], per_call BIGINT, session BIGINT, day BIGINT,
            month BIGINT, rate BIGINT);
    PERFORM recount(_now);
    PERFORM append(_q->>'writer', _now, 0, 'sealed', _q->>'detail');
    RETURN _version;
END $$;
