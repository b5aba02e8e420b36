-- Sums by network, for the dashboard.
DROP TRIGGER payments_added;
DROP TRIGGER payments_moved;
CREATE TRIGGER payments_added AFTER INSERT ON payments BEGIN
    INSERT INTO totals (scope, key, day, spent, held)
    SELECT column1, column2, column3, (NEW.state = 'settled') * NEW.usd, (NEW.state NOT IN ('settled', 'failed')) * NEW.usd FROM (VALUES
        ('all', '', NEW.created_at / 86400000000),
        ('session', NEW.session, NEW.created_at / 86400000000),
        ('host', NEW.host, NEW.created_at / 86400000000),
        ('network', NEW.network, NEW.created_at / 86400000000),
        ('symbol', NEW.symbol, NEW.created_at / 86400000000),
        ('hour', NEW.symbol, NEW.created_at / 3600000000),
        ('place', NEW.symbol || char(10) || NEW.place, NEW.created_at / 86400000000),
        ('ever', NEW.symbol || char(10) || NEW.place, 0))
    WHERE true
    ON CONFLICT (scope, key, day) DO UPDATE SET spent = spent + excluded.spent, held = held + excluded.held;
END;

CREATE TRIGGER payments_moved AFTER UPDATE OF state ON payments
WHEN OLD.state <> NEW.state AND (OLD.state IN ('settled', 'failed') OR NEW.state IN ('settled', 'failed')) BEGIN
    UPDATE totals SET
        spent = spent + ((NEW.state = 'settled') - (OLD.state = 'settled')) * NEW.usd,
        held  = held + ((NEW.state NOT IN ('settled', 'failed')) - (OLD.state NOT IN ('settled', 'failed'))) * NEW.usd
    WHERE (scope, key, day) IN (VALUES
        ('all', '', NEW.created_at / 86400000000),
        ('session', NEW.session, NEW.created_at / 86400000000),
        ('host', NEW.host, NEW.created_at / 86400000000),
        ('network', NEW.network, NEW.created_at / 86400000000),
        ('symbol', NEW.symbol, NEW.created_at / 86400000000),
        ('hour', NEW.symbol, NEW.created_at / 3600000000),
        ('place', NEW.symbol || char(10) || NEW.place, NEW.created_at / 86400000000),
        ('ever', NEW.symbol || char(10) || NEW.place, 0));
END;

INSERT INTO totals SELECT 'network', network, created_at / 86400000000, sum((state = 'settled') * usd), sum((state NOT IN ('settled', 'failed')) * usd)
    FROM payments GROUP BY 2, 3;
